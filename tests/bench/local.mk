# tests/bench: figures as ratios measured in one run
check_PROGRAMS += netbench portbench
netbench_SOURCES = tests/bench/netbench.c
netbench_LDADD =
portbench_SOURCES = tests/bench/portbench.c
portbench_LDADD = libports.a $(BASE_LIBS)
EXTRA_DIST += tests/bench/run
