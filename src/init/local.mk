# src/init: pid 1 of a jail. Static, because nothing inside the jail may be needed to run it; never sanitized for the same
# reason.
pkglibexec_PROGRAMS += sbxsv-init
sbxsv_init_SOURCES = src/init/init.c
sbxsv_init_CFLAGS = -std=gnu11 $(WARN_CFLAGS) $(HARDEN_CFLAGS)
sbxsv_init_LDFLAGS = -static
