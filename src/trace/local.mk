# src/trace: events, and what jails refuse
noinst_LIBRARIES += libtrace.a
libtrace_a_SOURCES = src/trace/call.c src/trace/call.h src/trace/ear.c src/trace/host.c src/trace/look.c src/trace/observer.c src/trace/observer_keep.c src/trace/observer.h \
	src/trace/observer_internal.h src/trace/events.c src/trace/events.h src/trace/fold.c src/trace/fold.h \
	src/trace/memory.c src/trace/memory.h src/trace/refused.c src/trace/refused.h src/trace/threads.c src/trace/who.c
