# tests

# jailrun: one launch through the backend interface, for tests/it/test_jail_*.py
check_PROGRAMS += jailrun
jailrun_SOURCES = tests/lib/jailrun.c
jailrun_LDADD = $(SANDBOX_LIBS) libnet.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(MNL_LIBS)
# attacker: tries what a jail forbids, from the inside; static, as it runs in jails that show little
check_PROGRAMS += attacker
attacker_SOURCES = tests/lib/attacker.c
attacker_CFLAGS = -std=gnu11 $(WARN_CFLAGS)
attacker_LDFLAGS = -static
EXTRA_DIST += tests/lib/jailbox.py tests/it/test_jail_files.py tests/it/test_jail_kernel.py tests/it/test_jail_network.py \
	tests/it/test_jail_process.py
EXTRA_DIST += tests/README.md tests/lib/harness.py tests/lib/appserver.py tests/it/conftest.py tests/it/pytest.ini
# the network, end to end
EXTRA_DIST += tests/lib/agent.py tests/lib/netsup.py tests/it/test_net_closed.py tests/it/test_net_egress.py tests/it/test_net_inbound.py \
	tests/it/test_net_report.py tests/it/test_net_capture.py
# badcalls: calls nobody sane makes, for the observer
check_PROGRAMS += badcalls
badcalls_SOURCES = tests/lib/badcalls.c
badcalls_CFLAGS = -std=gnu11 $(WARN_CFLAGS) -Wno-format-nonliteral
EXTRA_DIST += tests/it/test_observer.py
