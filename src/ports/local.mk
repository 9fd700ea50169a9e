# src/ports: who holds a port; reclaim
noinst_LIBRARIES += libports.a
libports_a_SOURCES = src/ports/ports.c src/ports/ports.h src/ports/internal.h src/ports/diag.c src/ports/lsof.c \
	src/ports/reclaim.c
