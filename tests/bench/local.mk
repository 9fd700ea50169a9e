# tests/bench: figures as ratios measured in one run
check_PROGRAMS += netbench portbench
netbench_SOURCES = tests/bench/netbench.c tests/bench/netbench.h tests/bench/server.c tests/bench/tunnels.c \
	tests/bench/relay.c
netbench_LDADD =
portbench_SOURCES = tests/bench/portbench.c
portbench_LDADD = libports.a $(BASE_LIBS)
EXTRA_DIST += tests/bench/run tests/bench/audit.py tests/bench/peers.py tests/bench/connect.py
