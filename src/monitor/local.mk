# src/monitor: readiness, resource use
noinst_LIBRARIES += libmonitor.a
libmonitor_a_SOURCES = src/monitor/ready.c src/monitor/ready.h src/monitor/usage.c src/monitor/usage.h
