# src/sup: apps, their state table, start, stop, reload, shutdown
noinst_LIBRARIES += libsup.a
libsup_a_SOURCES = \
	src/sup/sup.h src/sup/sup.c src/sup/app.h src/sup/app.c src/sup/action.c src/sup/explain.c src/sup/states.h src/sup/states.c \
	src/sup/restart.h src/sup/restart.c src/sup/run.c src/sup/network.c src/sup/live.c src/sup/loopback.c src/sup/liverules.h src/sup/liverules.c \
	src/sup/listener.c src/sup/order.h src/sup/order.c src/sup/wait.c src/sup/needs.c src/sup/newcomers.c src/sup/reclaim.c src/sup/command.c src/sup/reload.c src/sup/watch.c src/sup/shutdown.c \
	src/sup/instance.h src/sup/instance.c src/sup/status.c src/sup/health.c src/sup/notify.c src/sup/prepare.c src/sup/session.c src/sup/shortage.c src/sup/stdio.c src/sup/strays.c src/sup/violations.c
libsup_a_SOURCES += src/sup/upgrade.c src/sup/handover.c
libsup_a_SOURCES += src/sup/limits.c
libsup_a_SOURCES += src/sup/stdio_says.h src/sup/stdio_says.c
libsup_a_SOURCES += src/sup/hooks.c src/sup/outside.c
