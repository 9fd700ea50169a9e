# tests/it
EXTRA_DIST += tests/lib/netlab.py tests/lib/proxydrv.py tests/lib/sites.py tests/it/test_proxy_egress.py tests/it/test_proxy_forward.py
EXTRA_DIST += tests/it/test_check.py tests/it/test_cli.py tests/it/test_ctl.py
EXTRA_DIST += tests/it/test_live_policy.py
EXTRA_DIST += tests/it/test_app_to_app.py
EXTRA_DIST += tests/lib/alone.py tests/it/test_proxy_alone.py tests/it/test_proxy_fortress.py tests/it/test_proxy_upstream.py
EXTRA_DIST += tests/it/test_top.py
EXTRA_DIST += tests/it/test_net_dns.py tests/it/test_proxy_dns.py tests/it/test_proxy_resolve.py
EXTRA_DIST += tests/it/test_logs.py tests/it/test_ports.py
EXTRA_DIST += tests/it/test_notify.py tests/it/test_health.py
EXTRA_DIST += tests/it/test_upgrade.py
EXTRA_DIST += tests/it/test_broken_units.py
EXTRA_DIST += tests/it/test_sup.py tests/it/test_sup_many.py
EXTRA_DIST += tests/it/test_attack_files.py tests/it/test_attack_supervisor.py
EXTRA_DIST += tests/it/test_jail_hidden.py
EXTRA_DIST += tests/it/test_chaos.py tests/it/test_crash_matrix.py tests/it/test_worst_day.py tests/it/test_start_limit.py tests/it/test_reports.py tests/supervisors.md tests/lib/kernelview.py
EXTRA_DIST += tests/it/test_net_socks.py tests/it/test_net_transparent.py tests/it/test_net_live_rules.py
EXTRA_DIST += tests/it/test_corpus_live.py tests/it/test_proxy_hostile.py tests/lib/corpus.py tests/lib/corpuslive.py
check_PROGRAMS += proxy_quick
proxy_quick_SOURCES = proxy/main.c tests/lib/quick_timers.c
proxy_quick_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=loop_timer_start
proxy_quick_LDADD = $(PROXY_LIBS) $(BASE_LIBS)
check_PROGRAMS += proxy_hang
proxy_hang_SOURCES = proxy/main.c tests/lib/hang.c
proxy_hang_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=request_parse -Wl,--wrap=setitimer
proxy_hang_LDADD = $(PROXY_LIBS) $(BASE_LIBS)
# real servers and real clients
EXTRA_DIST += tests/lib/services.py tests/lib/wiretap.py tests/it/clients/Get.java tests/it/clients/get.go tests/it/clients/get.mjs \
	tests/it/clients/get.py
EXTRA_DIST += tests/it/test_clients_web.py tests/it/test_clients_tools.py
EXTRA_DIST += tests/it/test_clients_live.py tests/it/test_clients_refused.py
EXTRA_DIST += tests/it/test_violations.py tests/it/violators/attempt.go tests/it/violators/attempt.mjs tests/it/violators/attempt.py tests/it/violators/attempt.sh
EXTRA_DIST += tests/it/test_transcripts.py tests/it/data/transcripts
EXTRA_DIST += tests/it/test_import.py tests/corpus/import
EXTRA_DIST += tests/it/test_unit_commands.py
EXTRA_DIST += tests/it/test_pid1.py
EXTRA_DIST += tests/it/test_completion.py
EXTRA_DIST += tests/it/test_desktop.py
EXTRA_DIST += tests/it/test_session.py tests/it/test_proxy_idle.py
EXTRA_DIST += tests/it/test_session_many.py tests/lib/sessions.py
check_PROGRAMS += tinyserver
tinyserver_SOURCES = tests/lib/tinyserver.c
tinyserver_LDADD =
EXTRA_DIST += tests/it/test_order.py
EXTRA_DIST += tests/it/test_needs.py
