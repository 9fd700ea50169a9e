# contrib
EXTRA_DIST += contrib/quickstart contrib/check contrib/apparmor/sbxsv contrib/systemd/sbxsv.service \
	contrib/systemd/sbxsv-user.service .ci/run tests/lib/tally.py
