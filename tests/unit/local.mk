# tests/unit

if HAVE_CMOCKA
check_PROGRAMS += test_base
TESTS += test_base
endif
test_base_SOURCES = tests/unit/test_base.c
test_base_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_base_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_logs
TESTS += test_logs
endif
test_logs_SOURCES = tests/unit/test_logs.c
test_logs_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_logs_LDADD = liblogs.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_net
TESTS += test_net
endif
test_net_SOURCES = tests/unit/test_net.c
test_net_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_net_LDADD = libnet.a $(BASE_LIBS) $(CMOCKA_LIBS)
