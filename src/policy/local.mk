# src/policy: hosts, addresses, rules and decisions; pure, but for local.c, which asks the kernel for this machine's addresses
noinst_LIBRARIES += libpolicy.a
libpolicy_a_SOURCES = \
	src/policy/policy.h src/policy/local.c src/policy/local.h src/policy/rules.h src/policy/host.c src/policy/addr.c src/policy/rule.c \
	src/policy/ruleset.c src/policy/policy.c src/policy/decide.c src/policy/upstream.c src/policy/ports.c src/policy/probe.c
