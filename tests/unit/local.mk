# tests/unit
check_PROGRAMS += test_corpus
TESTS += test_corpus
test_corpus_SOURCES = tests/unit/test_corpus.c
test_corpus_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS)
EXTRA_DIST += tests/corpus/proxy.tsv tests/corpus/deviations.tsv tests/corpus/manifests

if HAVE_CMOCKA
check_PROGRAMS += test_addr
TESTS += test_addr
test_addr_SOURCES = tests/unit/test_addr.c
test_addr_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_addr_LDADD = libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_host
TESTS += test_host
test_host_SOURCES = tests/unit/test_host.c
test_host_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_host_LDADD = libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_policy
TESTS += test_policy
test_policy_SOURCES = tests/unit/test_policy.c
test_policy_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_policy_LDADD = libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_liverules
TESTS += test_liverules
test_liverules_SOURCES = tests/unit/test_liverules.c
test_liverules_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_liverules_LDADD = libsup.a libsandbox.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_denied
TESTS += test_denied
test_denied_SOURCES = tests/unit/test_denied.c
test_denied_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_denied_LDADD = libproxy.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_tally
TESTS += test_tally
test_tally_SOURCES = tests/unit/test_tally.c
test_tally_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_tally_LDADD = libnet.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_keep
TESTS += test_keep
test_keep_SOURCES = tests/unit/test_keep.c
test_keep_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_keep_LDADD = $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_dropin
TESTS += test_dropin
test_dropin_SOURCES = tests/unit/test_dropin.c
test_dropin_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_dropin_LDADD = $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_request
TESTS += test_request
test_request_SOURCES = tests/unit/test_request.c
test_request_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_request_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_sink
TESTS += test_sink

test_sink_SOURCES = tests/unit/test_sink.c
test_sink_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_sink_LDADD = liblogs.a $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += test_sni
TESTS += test_sni
test_sni_SOURCES = tests/unit/test_sni.c
test_sni_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_sni_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += test_socks
TESTS += test_socks
test_socks_SOURCES = tests/unit/test_socks.c
test_socks_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_socks_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)
endif

if HAVE_CMOCKA
check_PROGRAMS += test_base
TESTS += test_base
endif
test_base_SOURCES = tests/unit/test_base.c
test_base_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_base_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_ctl_peer test_ctl_route test_ctl_server
TESTS += test_ctl_peer test_ctl_route test_ctl_server
endif
test_ctl_route_SOURCES = tests/unit/test_ctl_route.c
test_ctl_route_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_ctl_route_LDADD = libctl.a libsup.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
CTL_WORLD = tests/unit/ctl_world.c tests/unit/ctl_world.h tests/unit/fake_sup.c tests/unit/fake_sup.h
CTL_WORLD_LIBS = $(CTL_LIBS) libsup.a $(CTLCLIENT_LIBS) liblogs.a libtrace.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
test_ctl_server_SOURCES = tests/unit/test_ctl_server.c $(CTL_WORLD)
test_ctl_server_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_ctl_server_LDADD = $(CTL_WORLD_LIBS)
test_ctl_peer_SOURCES = tests/unit/test_ctl_peer.c $(CTL_WORLD)
test_ctl_peer_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_ctl_peer_LDADD = $(CTL_WORLD_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_events
TESTS += test_events
endif
test_events_SOURCES = tests/unit/test_events.c
test_events_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_events_LDADD = libtrace.a $(BASE_LIBS) $(CMOCKA_LIBS)

TESTS += tests/unit/test_layers.py
EXTRA_DIST += tests/unit/test_layers.py

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
test_net_LDADD = libnet.a $(BASE_LIBS) $(MNL_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_nft
TESTS += test_nft
endif
test_nft_SOURCES = tests/unit/test_nft.c
test_nft_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_nft_LDADD = libnet.a $(BASE_LIBS) $(MNL_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_plan test_plan_fs test_plan_random
TESTS += test_plan test_plan_fs test_plan_random
endif
test_plan_SOURCES = tests/unit/test_plan.c tests/unit/fake_fs.c tests/unit/fake_fs.h
test_plan_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_plan_LDADD = $(SANDBOX_LIBS) libpolicy.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
test_plan_fs_SOURCES = tests/unit/test_plan_fs.c
test_plan_fs_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_plan_fs_LDADD = $(SANDBOX_LIBS) libpolicy.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
test_plan_random_SOURCES = tests/unit/test_plan_random.c tests/unit/fake_fs.c tests/unit/fake_fs.h
test_plan_random_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_plan_random_LDADD = $(SANDBOX_LIBS) libpolicy.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/unit/golden

if HAVE_CMOCKA
check_PROGRAMS += test_ports
TESTS += test_ports
endif
test_ports_SOURCES = tests/unit/test_ports.c
test_ports_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_ports_LDADD = libports.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_notify
TESTS += test_notify
endif
test_notify_SOURCES = tests/unit/test_notify.c
test_notify_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_notify_LDADD = libmonitor.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_ready
TESTS += test_ready
endif
test_ready_SOURCES = tests/unit/test_ready.c
test_ready_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_ready_LDADD = libmonitor.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_usage
TESTS += test_usage
endif
test_usage_SOURCES = tests/unit/test_usage.c
test_usage_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_usage_LDADD = libmonitor.a $(BASE_LIBS) $(CMOCKA_LIBS) -lpthread

if HAVE_CMOCKA
check_PROGRAMS += test_states
TESTS += test_states
endif
test_states_SOURCES = tests/unit/test_states.c
test_states_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_states_LDADD = libsup.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_needs
TESTS += test_needs
endif
test_needs_SOURCES = tests/unit/test_needs.c
test_needs_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_needs_LDADD = $(SANDBOX_LIBS) $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(SECCOMP_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_order
TESTS += test_order
endif
test_order_SOURCES = tests/unit/test_order.c
test_order_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_order_LDADD = $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_unit
TESTS += test_unit
endif
test_unit_SOURCES = tests/unit/test_unit.c
test_unit_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_unit_LDADD = libsandbox.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_unit_files
TESTS += test_unit_files
endif
test_unit_files_SOURCES = tests/unit/test_unit_files.c
test_unit_files_CPPFLAGS = $(AM_CPPFLAGS) -DSRCDIR=\"$(abs_top_srcdir)\"
test_unit_files_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_unit_files_LDADD = libsandbox.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/it/data/broken-units/cases.txt tests/it/data/broken-units/make_broken.py

if HAVE_CMOCKA
check_PROGRAMS += test_proxyctl
TESTS += test_proxyctl
endif
test_proxyctl_SOURCES = tests/unit/test_proxyctl.c
test_proxyctl_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_proxyctl_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=net_make_sockets
test_proxyctl_LDADD = libnet.a libpolicy.a $(BASE_LIBS) $(MNL_LIBS) $(CMOCKA_LIBS)
EXTRA_test_proxyctl_DEPENDENCIES = sbxsv-proxy

if HAVE_CMOCKA
check_PROGRAMS += test_launch
TESTS += test_launch
endif
test_launch_SOURCES = tests/unit/test_launch.c
if FILTERS_BUILT
test_launch_SOURCES += $(FILTER_SOURCES)
endif
test_launch_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_launch_LDADD = $(SANDBOX_LIBS) $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(SECCOMP_LIBS) $(CMOCKA_LIBS)
EXTRA_test_launch_DEPENDENCIES = sbxsv-init

if HAVE_CMOCKA
check_PROGRAMS += test_harden
TESTS += test_harden
endif
test_harden_SOURCES = tests/unit/test_harden.c
test_harden_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_harden_LDADD = $(PROXY_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_dns test_names
TESTS += test_dns test_names
endif
test_dns_SOURCES = tests/unit/test_dns.c
test_dns_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_dns_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)
test_names_SOURCES = tests/unit/test_names.c
test_names_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_names_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clk_mono_ms
test_names_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_policyfile
TESTS += test_policyfile
endif
test_policyfile_SOURCES = tests/unit/test_policyfile.c
test_policyfile_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_policyfile_LDADD = libproxyparse.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_hosts
TESTS += test_hosts
endif
test_hosts_SOURCES = tests/unit/test_hosts.c
test_hosts_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_hosts_LDADD = libproxy.a libpolicy.a $(BASE_LIBS) $(CMOCKA_LIBS)
if HAVE_CMOCKA
check_PROGRAMS += test_observer
TESTS += test_observer
endif
test_observer_SOURCES = tests/unit/test_observer.c
test_observer_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_observer_LDADD = libtrace.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_refused
TESTS += test_refused
endif
test_refused_SOURCES = tests/unit/test_refused.c
test_refused_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_refused_LDADD = libtrace.a $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_cgroup
TESTS += test_cgroup
endif
test_cgroup_SOURCES = tests/unit/test_cgroup.c
test_cgroup_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_cgroup_LDADD = $(SANDBOX_LIBS) libpolicy.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_sha256
TESTS += test_sha256
endif
test_sha256_SOURCES = tests/unit/test_sha256.c
test_sha256_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_sha256_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += test_says
TESTS += test_says
test_says_SOURCES = tests/unit/test_says.c
test_says_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
test_says_LDADD = libsup.a $(UNIT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
endif
