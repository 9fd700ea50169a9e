/* Shared inside src/unit only. */
#pragma once
#include "unit/unit.h"

enum { LINE_MAX_BYTES = 8192, FILE_MAX_BYTES = 256 * 1024, PROBLEMS_MAX = 50, KEY_NAME_MAX = 40 };

/* --- reader.c: lines --- */
struct reader_handler {
	/* A well-formed header. false: unknown (the handler reported it), the keys below are skipped. */
	bool (*section)(void *data, const char *section, unsigned line);
	void (*key)(void *data, const char *section, const char *key, const char *value, unsigned line);
	void *data;
};
/* Calls the handler for every well-formed line, in order; every other line is one problem. */
void unit_reader_parse(const char *shown, const char *text, size_t len, const struct reader_handler *h,
		       struct unit_problems *p);
/* At most ~60 bytes of text, safe to show. Owned by caller. */
char *unit_shown_text(const char *s);
/* Without the user and password of a URL in it. Owned by caller. */
char *unit_masked_url(const char *s);

/* --- keys.c: the table --- */
enum key_kind {
	K_TEXT,
	K_SHELL,
	K_WORDS,
	K_PATH,
	K_PATHS,
	K_PATHS_OPT,
	K_PATH_STRV,
	K_ENUM,
	K_ENUM_STR,
	K_ENUM_BOOL,
	K_BOOL,
	K_MS,
	K_UINT,
	K_COUNT,
	K_SIZE,
	K_NICE,
	K_CPU,
	K_SIGNAL,
	K_URLPATH,
	K_APPS,
	K_ENV,
	K_ENVNAMES,
	K_USER,
	K_STATUS,
	K_SECRET,
	K_DEVICE,
	K_HOSTS,
	K_ADDRESSES,
	K_PORTS,
	K_LISTEN,
	K_LOOPBACK,
	K_IP,
	K_PROXY_URL,
	K_NO_PROXY,
	K_PROFILE,
	K_NEED,
	K_HOOK,
};
enum {
	KEY_UNIT_ONLY = 1, /* has no meaning in a profile */
	KEY_BLOCKS = 2,    /* while it is not in force, an app that uses it is not started */
};
struct key_table {
	const struct unit_key *v;
	size_t n;
};
extern const struct key_table unit_table, unit_conf_table;
const struct unit_key *unit_key_find(const struct key_table *t, const char *section, const char *name);
/* What a word of systemd, supervisord or pm2 is here: "is Exec= in [App]". NULL: not known. */
const char *unit_foreign_key(const char *name);
const char *unit_foreign_section(const char *name);

/* Reports an unknown section or key with the nearest word, or the section it belongs to. */
bool unit_key_section_check(const struct key_table *t, const char *section, const char *shown, unsigned line,
			    struct unit_problems *p);
void unit_key_report_unknown(const struct key_table *t, const char *section, const char *name,
			     const char *shown, unsigned line, struct unit_problems *p);
/* Has the text of `default_text` a value the parser understands? ("(listen)" and "" are words for people.) */
bool unit_key_has_default(const struct unit_key *k);

/* --- words.c: expansion and quoting --- */
struct value_ctx {
	const struct unit_dirs *dirs;
	const char *name, *instance;
	const char *home;       /* of the app's user; NULL: unknown */
	const char *home_error; /* why home is NULL */
	uint16_t port;          /* first Listen's app port; 0: none */
};
enum { NO_HOME = -100 }; /* err_code of a value that needs the unknown home: one report a unit is enough */
/* %h %n %i %t %S %% $PORT ${PORT}, and with `tilde` a leading ~ or ~/. Appends to out. */
int unit_expand_text(const struct value_ctx *c, const char *raw, bool tilde, struct strbuf *out,
		     struct err **e);
/* Shell-like words: ' " \ quoting, expansion inside words, no splitting after expansion; `key` is for
 * messages. */
int unit_expand_words(const struct value_ctx *c, const char *key, const char *raw, struct strv *ret,
		      struct err **e);

/* --- values.c: one value of one key into the field of its struct --- */
/* An empty text clears a list. On failure nothing is changed. */
int unit_value_set(const struct value_ctx *c, const struct unit_key *k, void *base, const char *raw,
		   const char *origin, struct err **e);
bool unit_value_equal(const struct unit_key *k, const void *a, const void *b);
/* fields.c: kinds by how their field is stored */
enum unit_store {
	STORE_STR,
	STORE_INT,
	STORE_BOOL,
	STORE_I64,
	STORE_UINT,
	STORE_U64,
	STORE_STRV,
	STORE_LIST,
	STORE_STATUS,
	STORE_LISTEN,
	STORE_LOOPBACK
};
enum unit_store unit_store_of(const struct unit_key *k);
void unit_value_free(const struct unit_key *k, void *base);
int unit_enum_index(const struct unit_key *k, const char *text); /* -1; '!' is not part of the word */
const char *unit_enum_word(const struct unit_key *k, size_t i);
bool unit_enum_in_force(const struct unit_key *k, const char *text);
/* What a setter gets. */
struct set {
	const struct value_ctx *c;
	const struct unit_key *k;
	void *base, *field;
	const char *raw;  /* as written */
	const char *text; /* expanded, for the kinds that are one text */
	const char *origin;
};
/* lists.c */
int unit_set_word_list(struct set *s, struct err **e);
int unit_set_need_range(struct set *s, struct err **e);
int unit_set_hook(struct set *s, struct err **e);
void unit_list_drop_named(struct unit_list *l, const char *name); /* elements "NAME=..." */
/* kinds.c: checks of single words */
int unit_check_path(const char *text, struct err **e); /* absolute, no "..", sane length */
int unit_check_env_name(const char *s, size_t n);
int unit_check_version_range(const char *s, struct err **e);
int unit_check_url_path(const char *s, struct err **e);
void unit_list_add(struct unit_list *l, char *text, const char *origin); /* owns text */
void unit_list_clear(struct unit_list *l);

/* clash.c: `origin` is "notes.app:9", a place in a file */
void unit_problem_add_at(struct unit_problems *p, const char *origin, const char *text);

/* --- load.c: sources to a unit --- */
enum layer { LAYER_PROFILE, LAYER_UNIT, LAYER_DROPIN };
struct source {
	char *shown, *path, *text;
	size_t len;
	enum layer layer;
};
struct sources {
	struct source *v;
	size_t n, cap;
};
void unit_sources_finish(struct sources *s);
struct assign {
	const struct unit_key *key;
	char *raw, *origin, *shown;
	unsigned line;
	enum layer layer;
};
void unit_defaults_set(const struct key_table *t, void *base); /* into a struct that is zeroed */
struct assigns {
	struct assign *v;
	size_t n, cap;
};
void unit_assigns_finish(struct assigns *a);
void unit_source_parse(const struct source *src, const struct key_table *t, struct assigns *ret,
		       struct unit_problems *p);
/* Everything that surrounds a build. The disk is behind these callbacks. */
struct build_env {
	const struct unit_dirs *dirs;
	/* Adds the profile's source; false with the reason in *e. NULL: no profiles. */
	bool (*profile)(void *data, const char *name, struct source *ret, struct err **e);
	/* Home of the app's user (root mode). NULL result: *e says why. */
	char *(*home)(void *data, const char *user, struct err **e);
	void *data;
};
/* Sources in order (unit, then drop-ins). `ret_assigns` may be NULL; filled with what survives the merge,
 * profile first, even when there are problems. */
struct unit *unit_build(const struct build_env *env, const char *name, const char *path,
			const struct sources *s, struct unit_problems *p, struct assigns *ret_assigns);

/* --- validate.c: rules between keys --- */
struct key_state { /* where a key got its value; NULL: the default */
	const struct assign *last, *first;
};
struct validate {
	struct unit *u;
	const char *shown; /* the unit file, for what is missing */
	const struct unit_dirs *dirs;
	const struct key_state *states; /* by index in unit_table */
	const char *home;               /* of the app's user; NULL: unknown */
	struct unit_problems *p;
};
void unit_validate(const struct validate *v);
const struct assign *unit_state_of(const struct key_state *states, const char *section, const char *name);

/* --- scan.c, trust.c: the disk --- */
enum trust_want { TRUST_FILE, TRUST_DIR };
/* Opens for reading what only trusted users can change. -1 with the reason (without the path itself in
 * front). */
int unit_trust_open(const struct unit_dirs *d, const char *path, enum trust_want want, struct err **e);
bool unit_path_exists(const char *path); /* a dangling symlink exists */
/* All sources of a unit but its profile. -1: nothing was readable. */
int unit_sources_read(const struct unit_dirs *d, const char *name, struct sources *ret, char **ret_path,
		      struct unit_problems *p);
/* The unit with `text` in place of one of its own drop-ins, or with one more; text NULL: as it is. */
struct unit *unit_load_changed(const struct unit_dirs *d, const char *name, const char *shown, const char *path,
			       const char *text, struct unit_problems *p);
struct unit *unit_load_with(const struct unit_dirs *d, const char *name, struct unit_problems *p,
			    struct assigns *ret_assigns);
