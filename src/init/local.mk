# src/init: pid 1 of a jail. Static, because nothing inside the jail may be needed to run it, without a libc where raw.h knows
# the processor; never sanitized and without a stack protector, which both need one.
pkglibexec_PROGRAMS += sbxsv-init
sbxsv_init_SOURCES = src/init/init.c src/init/raw.h
sbxsv_init_CFLAGS = -std=gnu11 $(WARN_CFLAGS) -fno-strict-aliasing -fno-stack-protector -fno-pie -ffreestanding -O2
if FREESTANDING_INIT
sbxsv_init_LDFLAGS = -static -nostdlib -nostartfiles
else
sbxsv_init_LDFLAGS = -static
endif
