# src/logs: capture, rotate, ring, follow
noinst_LIBRARIES += liblogs.a
liblogs_a_SOURCES = \
	src/logs/back.c src/logs/back.h src/logs/logs.c src/logs/logs_internal.h src/logs/logs_keep.c src/logs/logs.h src/logs/ring.c src/logs/ring.h \
	src/logs/sink.c src/logs/sink.h src/logs/times.c src/logs/times.h
