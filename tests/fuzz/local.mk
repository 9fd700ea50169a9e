# tests/fuzz
EXTRA_DIST += tests/fuzz/seeds/ctl
if FUZZERS
check_PROGRAMS += fuzz_ctl
fuzz_ctl_SOURCES = tests/fuzz/fuzz_ctl.c
fuzz_ctl_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_ctl_LDADD = libctl.a $(UNIT_LIBS) $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/policy tests/fuzz/seeds/request tests/fuzz/seeds/sni
if FUZZERS
check_PROGRAMS += fuzz_policy fuzz_request fuzz_sni
fuzz_policy_SOURCES = tests/fuzz/fuzz_policy.c
fuzz_policy_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_policy_LDADD = libpolicy.a $(BASE_LIBS)
fuzz_request_SOURCES = tests/fuzz/fuzz_request.c
fuzz_request_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_request_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
fuzz_sni_SOURCES = tests/fuzz/fuzz_sni.c
fuzz_sni_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_sni_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
endif
if FUZZERS
check_PROGRAMS += fuzz_socks
fuzz_socks_SOURCES = tests/fuzz/fuzz_socks.c
fuzz_socks_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_socks_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/notify
if FUZZERS
check_PROGRAMS += fuzz_notify
fuzz_notify_SOURCES = tests/fuzz/fuzz_notify.c
fuzz_notify_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_notify_LDADD = libmonitor.a $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/policyfile
if FUZZERS
check_PROGRAMS += fuzz_policyfile
fuzz_policyfile_SOURCES = tests/fuzz/fuzz_policyfile.c
fuzz_policyfile_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_policyfile_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/unit
if FUZZERS
check_PROGRAMS += fuzz_unit
fuzz_unit_SOURCES = tests/fuzz/fuzz_unit.c
fuzz_unit_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_unit_LDADD = libsandbox.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/wire
if FUZZERS
check_PROGRAMS += fuzz_wire
fuzz_wire_SOURCES = tests/fuzz/fuzz_wire.c
fuzz_wire_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_wire_LDADD = libnet.a libpolicy.a $(BASE_LIBS) $(MNL_LIBS)
endif
# written from the corpus
EXTRA_DIST += tests/fuzz/seeds_from_corpus.py tests/fuzz/seeds/dns tests/fuzz/seeds/socks
EXTRA_DIST += tests/fuzz/seeds/names
if FUZZERS
check_PROGRAMS += fuzz_dns fuzz_names
fuzz_dns_SOURCES = tests/fuzz/fuzz_dns.c
fuzz_dns_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_dns_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
fuzz_names_SOURCES = tests/fuzz/fuzz_names.c
fuzz_names_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_names_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/judge
if FUZZERS
check_PROGRAMS += fuzz_judge
fuzz_judge_SOURCES = tests/fuzz/fuzz_judge.c
fuzz_judge_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_judge_LDADD = libtrace.a $(SANDBOX_LIBS) libpolicy.a $(UNIT_LIBS) $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/import
if FUZZERS
check_PROGRAMS += fuzz_import
fuzz_import_SOURCES = tests/fuzz/fuzz_import.c
fuzz_import_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_import_LDADD = libsandbox.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS)
endif
EXTRA_DIST += tests/fuzz/seeds/says
if FUZZERS
check_PROGRAMS += fuzz_says
fuzz_says_SOURCES = tests/fuzz/fuzz_says.c
fuzz_says_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
fuzz_says_LDADD = libsup.a $(UNIT_LIBS) $(BASE_LIBS)
endif
