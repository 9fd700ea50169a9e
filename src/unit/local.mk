# src/unit: unit files, profiles, drop-ins, sbxsv.conf; the only user of inih
noinst_LIBRARIES += libunit.a
libunit_a_SOURCES = \
	src/unit/unit.h src/unit/internal.h src/unit/clash.c src/unit/conf.c src/unit/diff.c src/unit/dropin.c src/unit/dirs.c src/unit/effective.c \
	src/unit/envfile.c src/unit/fields.c src/unit/foreign.c src/unit/keep.c src/unit/keys.c src/unit/kinds.c src/unit/lists.c src/unit/peers.c src/unit/load.c src/unit/order.h src/unit/order.c src/unit/reader.c \
	src/unit/scan.c src/unit/secrets.c src/unit/trust.c src/unit/unit.c src/unit/validate.c src/unit/values.c src/unit/version.c src/unit/words.c
libunit_a_SOURCES += src/unit/import.c src/unit/import.h src/unit/import_internal.h src/unit/import_lines.c \
	src/unit/import_manifest.c src/unit/import_srt.c src/unit/import_supervisord.c src/unit/import_systemd.c
UNIT_LIBS = libunit.a $(INIH_LIBS)
