/* Shared by the converters of src/unit/import*.c. */
#pragma once
#include "unit/import.h"
#include "unit/internal.h"

enum { IMPORT_TEXT_MAX = 4000, IMPORT_LINES_MAX = 2000 };

struct import_line {
	const char *section, *key; /* key NULL: a comment; section NULL: at the head of the unit */
	char *text;
	bool vital; /* the app would be another one without it, or less confined */
};
struct importing {
	const struct import_request *r;
	char *name;
	struct import_line *v;
	size_t n, cap, notes;
	struct err **e;
	bool failed; /* *e is set */
};

/* Each does nothing once something failed. Values are in the syntax of unit files: a literal '%' is "%%". */
void import_set(struct importing *m, const char *section, const char *key, const char *value);
/* Without it the unit would not be what the file says: a refusal of the reader is one of the import. */
void import_vital(struct importing *m, const char *section, const char *key, const char *value);
void import_note(struct importing *m, const char *section, const char *fmt, ...) PRINTF_LIKE(3, 4);
void import_fail(struct importing *m, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* "name" after "import" for messages and comments; refuses what is no name of an app. */
void import_name(struct importing *m, const char *name);
bool import_text_ok(struct importing *m, const char *what, const char *text);

/* Owned by caller. */
char *import_percent(const char *s); /* each % doubled */
/* A word for Exec= and Environment=, quoted where needed; its '%' are those of unit files already. */
char *import_quote(const char *word);
char *import_command(char *const *words);
/* `path` below `dir` when it is relative; ~ stays. NULL after import_fail(). */
char *import_path(struct importing *m, const char *what, const char *path, const char *dir);
/* The directory that was asked for, or that the file says, or the one of the command when that is not the
 * system's. Sets WorkingDirectory= (and fails without one); the words are literal. */
void import_directory(struct importing *m, const char *said, char *const *words);
bool import_is_number(const char *s);
/* `word` is none of `words` (NULL-terminated): fails, with the nearest. */
void import_bad_word(struct importing *m, const char *what, const char *word, const char *const *words);

/* import_lines.c: INI files of systemd and supervisord */
struct import_key {
	char *section, *key, *value;
	unsigned line;
};
struct import_keys {
	struct import_key *v;
	size_t n, cap;
};
enum import_ini { IMPORT_INI_SYSTEMD, IMPORT_INI_SUPERVISORD };
void import_read_ini(struct importing *m, enum import_ini how, struct import_keys *ret);
void import_keys_finish(struct import_keys *k);

void import_manifest(struct importing *m);
void import_systemd(struct importing *m);
void import_supervisord(struct importing *m);
void import_srt(struct importing *m);
