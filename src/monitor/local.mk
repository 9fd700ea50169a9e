# src/monitor: readiness, health, resource use
noinst_LIBRARIES += libmonitor.a
libmonitor_a_SOURCES = src/monitor/notify.c src/monitor/notify.h src/monitor/probe.c src/monitor/probe.h src/monitor/ready.c \
	src/monitor/ready.h src/monitor/usage.c src/monitor/usage.h
