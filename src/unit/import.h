/*
 * Files of other programs as units: `sbxsv import`.
 *
 * Theory of operation. A converter (import_manifest.c, import_systemd.c, import_supervisord.c, import_srt.c) reads
 * one format and says keys of unit files, and notes for what has no counterpart. import.c collects both, renders
 * the unit, and reads it with the ordinary reader: a key that the reader refuses becomes a comment with the
 * reason, unless the app would then be another one or less confined than the file says; then the whole import is
 * refused. So what is printed is a unit without errors, whatever the input. Nothing here touches the disk or
 * runs anything, and these things are never emitted: Enforce=off, [Hooks], a live [Prepare].
 */
#pragma once
#include "unit/unit.h"

#define IMPORT_MAX_BYTES ((size_t)1 << 20)

enum import_kind { IMPORT_MANIFEST, IMPORT_SYSTEMD, IMPORT_SUPERVISORD, IMPORT_SRT, IMPORT_KINDS };
/* -1: no such kind. */
int unit_import_kind(const char *name, enum import_kind *ret);
/* By what is in it. -1 with what was looked for. */
int unit_import_recognise(const char *text, size_t len, enum import_kind *ret, struct err **e);

struct import_request {
	const struct unit_dirs *dirs;
	const char *text;
	size_t len;
	const char *shown;                /* the file's name for people */
	const char *name;                 /* of the app; NULL: as the file says */
	const char *file_name;            /* base name of the file, for a name that it does not say; NULL */
	const char *directory;            /* asked for; NULL: as the file says */
	const char *file_dir;             /* where the file lies, absolute; NULL */
	const char *port;                 /* asked for; NULL */
	char *const *command;             /* asked for; NULL or NULL-terminated */
	bool (*exists)(const char *path); /* NULL: nothing is known */
};
struct import_result {
	char *name, *text; /* owned by caller */
	size_t notes;      /* how many things became comments */
};
int unit_import(const struct import_request *r, enum import_kind kind, struct import_result *ret,
		struct err **e);
void unit_import_finish(struct import_result *r);
