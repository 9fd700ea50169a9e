/*
 * The drop-in that `sbxsv allow --save` and `deny --save` keep: NAME.app.d/50-allow.conf. It is an ordinary
 * drop-in: a person may write lines of their own into it, and those stay.
 *
 * Theory of operation. Under a lock on apps.d: read the file, make the new text, build the whole unit as it would
 * then be, and only when that has no problem write a temporary file beside it, fsync, rename. Whatever happens
 * at whatever moment, the old or the new file is there whole, and a reader that comes between sees one of them.
 * Neither the directory nor the file may be a symlink; who may own them is trust.c's to say.
 */
#include "base/fd.h"
#include "base/file.h"
#include "unit/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <time.h>

/* No unit and no temporary file of an editor (scan.c, watch.c); a kill leaves at most this one. */
#define TEMPORARY "." UNIT_ALLOW_DROPIN ".tmp" /* of whichever file: there is one lock */

#define LOCK_STEP_MS 10
#define LOCK_MAX_MS  15000

static const char head[] =
	"# Rules of `sbxsv allow --save` and `sbxsv deny --save`. Lines of your own are kept.\n";

/* --- the text --- */

struct lines {
	struct strv v; /* without newlines */
	size_t at;     /* behind the last key of the last section of that name; 0: there is none */
};

static void split(const char *text, struct strv *ret)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		strv_take(ret, xstrndup(text, n));
		text += n + (text[n] == '\n');
	}
}

/* "Key=value" of this key: the value, else NULL. */
static const char *value_of(const char *line, const char *key)
{
	size_t n = strlen(key);

	if (strncmp(line, key, n) != 0)
		return NULL;
	line += n;
	line += strspn(line, " \t");
	return *line == '=' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

/* Words of a value without those equal to `text`; NULL when there were none such. Names have no case. */
static char *without(const char *value, const char *text)
{
	CLEANUP_STRV struct strv kept = {0};
	bool found = false;

	while (*value) {
		size_t n = strcspn(value, " \t\r");

		if (n == strlen(text) && strncasecmp(value, text, n) == 0)
			found = true;
		else if (n)
			strv_take(&kept, xstrndup(value, n));
		value += n;
		value += strspn(value, " \t\r");
	}
	return found ? strv_join(&kept, " ") : NULL;
}

/* Is the line to go, or to be another one? Then *line is changed; NULL: it goes. */
static bool edit_line(char **line, const struct unit_edit *v, size_t n)
{
	bool changed = false;

	for (size_t i = 0; i < n && *line; i++) {
		const char *value = v[i].remove ? value_of(*line, v[i].key) : NULL;
		CLEANUP_FREE char *rest = value ? without(value, v[i].text) : NULL;
		char *now;

		if (!rest)
			continue;
		changed = true;
		now = *rest ? xasprintf("%s=%s", v[i].key, rest)
			    : NULL; /* an empty value would clear the list */
		free(*line);
		*line = now;
	}
	return changed;
}

static const char *section_of(const struct unit_edit *v, size_t n)
{
	return n && v[0].path ? "[Sandbox]" : "[Network]";
}

static void read_lines(const char *text, const struct unit_edit *v, size_t n, struct lines *ret)
{
	CLEANUP_STRV struct strv all = {0};
	const char *section = section_of(v, n);
	bool inside = false;

	split(text, &all);
	for (size_t i = 0; i < all.n; i++) {
		char *line = TAKE_PTR(all.v[i]);

		if (line[0] == '[')
			inside = str_starts(line, section);
		if (inside)
			(void)edit_line(&line, v, n);
		if (!line)
			continue;
		if (inside && line[0] != '#' && line[0] != ';' && line[strspn(line, " \t\r")])
			ret->at = ret->v.n + 1;
		strv_take(&ret->v, line);
	}
}

/* A path is a whole line: it may have blanks. */
static bool is_value(const char *value, const struct unit_edit *edit)
{
	CLEANUP_FREE char *rest = NULL;

	if (!edit->path) {
		rest = without(value, edit->text);
		return rest != NULL;
	}
	rest = xstrdup(value);
	return str_eq(str_trim(rest), edit->text);
}

/* Does the section say it already, behind the last line that clears the key? */
static bool says(const struct lines *l, const struct unit_edit *edit)
{
	bool inside = false, found = false;

	for (size_t i = 0; i < l->v.n; i++) {
		const char *line = l->v.v[i], *value;

		if (line[0] == '[')
			inside = str_starts(line, section_of(edit, 1));
		value = inside ? value_of(line, edit->key) : NULL;
		if (value)
			found = *value && (found || is_value(value, edit));
	}
	return found;
}

static void insert(struct lines *l, char *line)
{
	strv_take(&l->v, line);
	for (size_t i = l->v.n - 1; i > l->at; i--) {
		char *swap = l->v.v[i];

		l->v.v[i] = l->v.v[i - 1];
		l->v.v[i - 1] = swap;
	}
	l->at++;
}

char *unit_edit_text(const char *text, const struct unit_edit *v, size_t n)
{
	struct lines l = {0};
	struct strbuf out = STRBUF_INIT;

	read_lines(text, v, n, &l);
	for (size_t i = 0; i < n; i++) {
		if (v[i].remove || says(&l, &v[i]))
			continue;
		if (!l.at) {
			if (l.v.n)
				strv_add(&l.v, "");
			strv_add(&l.v, section_of(v, n));
			l.at = l.v.n;
		}
		insert(&l, xasprintf("%s=%s", v[i].key, v[i].text));
	}
	strbuf_adds(&out, "");
	for (size_t i = 0; i < l.v.n; i++)
		strbuf_addf(&out, "%s\n", l.v.v[i]);
	strv_clear(&l.v);
	return strbuf_take(&out);
}

/* --- the disk --- */

struct dropin {
	const struct unit_dirs *d;
	int apps, dir;    /* dir: -1 while it does not exist */
	const char *file; /* its name */
	char *dir_name, *path;
	char *before; /* the file's text; NULL: there is none */
};

static void dropin_finish(struct dropin *x)
{
	fd_close_many(&x->dir, 1);
	fd_close_many(&x->apps, 1); /* and with it the lock */
	free(x->dir_name);
	free(x->path);
	free(x->before);
}

static int open_dir(struct dropin *x, struct err **e)
{
	CLEANUP_FREE char *path = path_join(x->d->apps, x->dir_name);
	CLEANUP_FD int judged = -1;
	struct stat a, b;

	x->dir = file_open_nofollow(x->apps, x->dir_name, O_RDONLY | O_DIRECTORY, 0);
	if (x->dir < 0 && errno == ENOENT)
		return 0;
	if (x->dir < 0 && errno == ELOOP)
		return err_set(e, ELOOP, "%s is a symlink: rules are not saved through one", path);
	if (x->dir < 0)
		return err_sys(e, errno, "%s", path);
	judged = unit_trust_open(x->d, path, TRUST_DIR, e);
	if (judged < 0)
		return err_wrap(e, "%s", path);
	if (fstat(judged, &a) < 0 || fstat(x->dir, &b) < 0 || !file_same(&a, &b))
		return err_set(e, EAGAIN, "%s changed while it was looked at; try again", path);
	return 0;
}

static int read_before(struct dropin *x, struct err **e)
{
	struct stat st;
	size_t len = 0;

	if (x->dir < 0 || (fstatat(x->dir, x->file, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT))
		return 0;
	if (fstatat(x->dir, x->file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, errno, "%s", x->path);
	if (S_ISLNK(st.st_mode))
		return err_set(e, ELOOP, "%s is a symlink: rules are not saved through one", x->path);
	if (unit_trusted_read(x->d, x->path, FILE_MAX_BYTES, &x->before, &len, e) < 0)
		return err_wrap(e, "%s", x->path);
	if (strlen(x->before) != len)
		return err_set(e, EINVAL, "%s contains a NUL byte; nothing was changed", x->path);
	return 0;
}

/* Others hold it for milliseconds; one that was stopped in the middle shall not hold up everybody for ever. */
static int lock(int dir)
{
	const struct timespec pause = {.tv_nsec = LOCK_STEP_MS * 1000000L};

	for (int waited = 0; flock(dir, LOCK_EX | LOCK_NB) < 0; waited += LOCK_STEP_MS) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || waited > LOCK_MAX_MS)
			return -1;
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static int dropin_open(struct dropin *x, const char *name, struct err **e)
{
	x->dir_name = xasprintf("%s.app.d", name);
	x->path = xasprintf("%s/%s/%s", x->d->apps, x->dir_name, x->file);
	x->apps = unit_trust_open(x->d, x->d->apps, TRUST_DIR, e);
	if (x->apps < 0)
		return err_wrap(e, "%s", x->d->apps);
	if (lock(x->apps) < 0)
		return err_sys(e, errno,
			       "%s is locked by another sbxsv that saves a rule, or cannot be locked",
			       x->d->apps);
	return open_dir(x, e) < 0 || read_before(x, e) < 0 ? -1 : 0;
}

static int write_temporary(int dir, const char *text, size_t len)
{
	CLEANUP_FD int fd = file_open_nofollow(dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL, 0600);

	return fd < 0 || fd_write_all(fd, text, len) < 0 || fsync(fd) < 0 ? -1 : 0;
}

static int publish(struct dropin *x, const char *text, struct err **e)
{
	bool made = x->dir < 0;
	int saved;

	if (made && mkdirat(x->apps, x->dir_name, 0700) < 0)
		return err_sys(e, errno, "%s/%s cannot be made", x->d->apps, x->dir_name);
	if (made)
		x->dir = file_open_nofollow(x->apps, x->dir_name, O_RDONLY | O_DIRECTORY, 0);
	if (x->dir < 0)
		return err_sys(e, errno, "%s/%s", x->d->apps, x->dir_name);
	(void)unlinkat(x->dir, TEMPORARY, 0); /* of one that was killed; the lock is ours */
	if (write_temporary(x->dir, text, strlen(text)) == 0 &&
	    renameat(x->dir, TEMPORARY, x->dir, x->file) == 0) {
		(void)fsync(x->dir); /* the file is whole either way */
		if (made)
			(void)fsync(x->apps);
		return 0;
	}
	saved = errno;
	(void)unlinkat(x->dir, TEMPORARY, 0);
	if (made)
		(void)unlinkat(x->apps, x->dir_name, AT_REMOVEDIR);
	return err_sys(e, saved, "%s cannot be written; it is as it was", x->path);
}

int unit_dropin_edit(const struct unit_dirs *d, const char *name, const struct unit_edit *v, size_t n,
		     unit_accept_fn *accept, void *data, struct unit_dropin *ret, struct unit_problems *p,
		     struct err **e)
{
	CLEANUP(dropin_finish) struct dropin x = {.d = d, .file = UNIT_ALLOW_DROPIN, .apps = -1, .dir = -1};
	CLEANUP_FREE char *text = NULL, *shown = NULL;
	CLEANUP_UNIT struct unit *u = NULL;
	bool changed;

	if (dropin_open(&x, name, e) < 0)
		return -1;
	text = unit_edit_text(x.before ? x.before : head, v, n);
	changed = strcmp(text, x.before ? x.before : head) != 0;
	shown = xasprintf("%s/" UNIT_ALLOW_DROPIN, x.dir_name);
	u = unit_load_changed(d, name, shown, x.path, changed || x.before ? text : NULL, p);
	if (!u)
		return err_set(e, EINVAL, "the unit would not be valid");
	if (accept && accept(data, u, e) < 0)
		return -1;
	if (changed && publish(&x, text, e) < 0)
		return -1;
	*ret = (struct unit_dropin){.path = TAKE_PTR(x.path), .changed = changed};
	return 0;
}

int unit_dropin_enable(const struct unit_dirs *d, const char *name, bool enabled, struct unit_dropin *ret,
		       struct unit_problems *p, struct err **e)
{
	CLEANUP(dropin_finish) struct dropin x = {.d = d, .file = UNIT_ENABLED_DROPIN, .apps = -1, .dir = -1};
	CLEANUP_FREE char *text = xasprintf(
				  "# Written by `sbxsv enable` and `sbxsv disable`.\n[App]\nEnabled=%s\n",
				  enabled ? "yes" : "no"),
			  *shown = NULL;
	CLEANUP_UNIT struct unit *u = NULL;
	bool changed;

	if (dropin_open(&x, name, e) < 0)
		return -1;
	changed = !str_eq(x.before, text);
	shown = xasprintf("%s/" UNIT_ENABLED_DROPIN, x.dir_name);
	u = unit_load_changed(d, name, shown, x.path, text, p);
	if (!u)
		return err_set(e, EINVAL, "the unit would not be valid");
	if (u->enabled != enabled)
		return err_set(e, EEXIST, "a drop-in that comes after %s says Enabled=%s", shown,
			       u->enabled ? "yes" : "no");
	if (changed && publish(&x, text, e) < 0)
		return -1;
	*ret = (struct unit_dropin){.path = TAKE_PTR(x.path), .changed = changed};
	return 0;
}
