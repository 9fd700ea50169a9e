# src/base: errors, cleanup, strings, fds, files, clock, log, loop (libev), json (cJSON), wire (JSON + fds)
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	src/base/cleanup.h src/base/err.c src/base/err.h src/base/str.c src/base/str.h src/base/parse.c src/base/parse.h \
	src/base/fd.c src/base/fd.h src/base/file.c src/base/file.h src/base/clock.c src/base/clock.h \
	src/base/log.c src/base/log.h src/base/loop.c src/base/loop.h src/base/json.c src/base/json.h \
	src/base/wire.c src/base/wire.h src/base/linefile.c src/base/linefile.h \
	src/base/program.c src/base/program.h src/base/keep.c src/base/keep.h src/base/sha256.c src/base/sha256.h
BASE_LIBS = libbase.a $(EV_LIBS) $(CJSON_LIBS) -lm
