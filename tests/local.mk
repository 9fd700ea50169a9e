# tests

# jailrun: one launch through the backend interface, for tests/it/test_jail_*.py
check_PROGRAMS += jailrun
jailrun_SOURCES = tests/lib/jailrun.c
jailrun_LDADD = $(SANDBOX_LIBS) libnet.a $(BASE_LIBS)
EXTRA_DIST += tests/README.md tests/lib/harness.py tests/lib/appserver.py tests/it/conftest.py tests/it/pytest.ini
