# As attempt.py, in shell and the usual commands.
work() {
	seconds=${1%%::*} own=${1#*::} n=0 end=$(($(date +%s) + ${1%%::*}))
	while [ "$(date +%s)" -lt "$end" ]; do
		n=$((n + 1))
		echo "$n" >"$own/sh-new"
		mv "$own/sh-new" "$own/sh-$((n % 7))"
		mkdir -p "$own/sh-dir/a"
		ls "$own" >/dev/null
		grep -c root /etc/passwd >/dev/null
		[ -e /nonexistent/x ] || true
		mktemp >/dev/null
		sleep 0.02
	done
}
while [ $# -gt 1 ]; do
	case $1 in
	read) cat "$2" ;;
	relative) (cd "${2%%::*}" && cat "${2#*::}") ;;
	write) (echo x >"$2") ;;
	exec) "$2" ;;
	unix) curl -sS --max-time 20 --unix-socket "$2" http://x/ ;;
	host) curl -sSf --max-time 20 "http://$2/" ;;
	raw) curl -sSf --max-time 20 --noproxy '*' "http://$2:443/" ;;
	work) work "$2" ;;
	sleep) sleep "$2" ;;
	esac
	echo "$1 $2 $?"
	shift 2
done
