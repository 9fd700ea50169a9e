# src/trace: events
noinst_LIBRARIES += libtrace.a
libtrace_a_SOURCES = src/trace/events.c src/trace/events.h src/trace/fold.c src/trace/fold.h \
	src/trace/memory.c src/trace/memory.h
