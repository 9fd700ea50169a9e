/*
 * Notices files dropped into apps.d and its drop-in directories (NAME.app.d). One inotify descriptor; nothing
 * wakes while nothing changes.
 *
 * A burst of changes is one: the scan runs when there was silence for 200 ms, and at the latest 2 s after the
 * first change. After the creation of a plain file it waits for a second, as its close will follow unless it
 * was linked there: a file that is still being written is not read. When apps.d itself is missing, its
 * nearest existing parent is watched instead until it is there. Watches belong to inodes, so they are renewed
 * before every scan: a directory removed and made again is another one.
 *
 * A person who saves a unit and types a command at once means the unit as saved: a command takes what was
 * noticed so far before it looks for its app (watch_flush).
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#define SILENCE_MS 200
#define WRITING_MS 1000
#define LATEST_MS  2000
#define CHANGES                                                                                              \
	(IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | \
	 IN_MOVE_SELF)

struct place {
	int wd;
	char *path;
};

struct watch {
	struct loop *loop;
	int fd;
	char *dir;
	void (*changed)(void *data);
	void *data;
	struct loop_io io;
	struct loop_timer timer;
	int64_t first_ms; /* of the changes that are not told yet; 0: none */
	struct place *places;
	size_t n, cap;
	char *awaited; /* apps.d is missing: the name in the watched parent that would lead to it */
};

static void on_silence(struct loop_timer *t)
{
	struct watch *w = t->data;

	w->first_ms = 0;
	w->changed(w->data); /* ends in watch_renew() */
}

static void note_change(struct watch *w, int64_t silence_ms)
{
	int64_t now = clk_mono_ms(), left;

	if (!w->first_ms)
		w->first_ms = now;
	left = w->first_ms + LATEST_MS - now;
	loop_timer_start(&w->timer, left < silence_ms ? left : silence_ms);
}

static const char *path_of(const struct watch *w, int wd)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->places[i].wd == wd)
			return w->places[i].path;
	return NULL;
}

/* Editors' and our own temporary files are no units: they need no scan (scan.c ignores them too). */
static bool temporary(const char *name)
{
	return name[0] == '.' || str_ends(name, "~") || str_ends(name, ".tmp") || str_ends(name, ".swp");
}

/* How long to wait for silence after this one; 0: it does not matter. */
static int64_t matters(const struct watch *w, const struct inotify_event *ev)
{
	CLEANUP_FREE char *path = NULL;
	const char *dir = path_of(w, ev->wd);
	struct stat st;

	if (ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_Q_OVERFLOW))
		return SILENCE_MS;
	if ((ev->mask & IN_IGNORED) || !ev->len || !dir)
		return 0;
	if (w->awaited)
		return str_eq(ev->name, w->awaited) ? SILENCE_MS : 0;
	if (temporary(ev->name))
		return 0;
	if (!(ev->mask & IN_CREATE))
		return SILENCE_MS;
	path = path_join(dir, ev->name);
	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? WRITING_MS : SILENCE_MS;
}

static void take_events(struct watch *w)
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	while ((n = read(w->fd, buf, sizeof buf)) > 0)
		for (char *p = buf; p < buf + n;) {
			const struct inotify_event *ev = (const struct inotify_event *)(void *)p;
			int64_t silence;

			if ((silence = matters(w, ev)))
				note_change(w, silence);
			p += sizeof *ev + ev->len;
		}
}

static void on_readable(struct loop_io *io, unsigned events)
{
	(void)events;
	take_events(io->data);
}

void watch_flush(struct watch *w)
{
	if (!w)
		return;
	take_events(w);
	if (!w->first_ms)
		return;
	loop_timer_stop(&w->timer);
	on_silence(&w->timer);
}

static int add(struct watch *w, const char *path)
{
	int wd = inotify_add_watch(w->fd, path, CHANGES | IN_ONLYDIR);

	if (wd < 0)
		return -1;
	VEC_GROW(w->places, w->n, w->cap);
	w->places[w->n++] = (struct place){.wd = wd, .path = xstrdup(path)};
	return 0;
}

static void add_drop_ins(struct watch *w)
{
	CLEANUP_DIR DIR *d = opendir(w->dir);
	const struct dirent *de;

	while (d && (de = readdir(d))) {
		CLEANUP_FREE char *path = NULL;

		if (de->d_name[0] == '.' || !str_ends(de->d_name, ".app.d"))
			continue;
		path = path_join(w->dir, de->d_name);
		(void)add(w, path);
	}
}

static void add_nearest_parent(struct watch *w)
{
	CLEANUP_FREE char *path = xstrdup(w->dir);

	while (path[1]) {
		char *up = path_dirname(path);

		free(w->awaited);
		w->awaited = xstrdup(path_basename(path));
		free(path);
		path = up;
		if (add(w, path) == 0)
			return;
	}
}

static void places_free(struct place *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i].path);
	free(v);
}

void watch_renew(struct watch *w)
{
	struct place *old;
	size_t n_old;

	if (!w)
		return;
	old = w->places;
	n_old = w->n;
	w->places = NULL;
	w->n = w->cap = 0;
	free(w->awaited);
	w->awaited = NULL;
	if (add(w, w->dir) == 0) /* the same inode gives the same number */
		add_drop_ins(w);
	else
		add_nearest_parent(w);
	if (!w->n)
		log_warning("%s cannot be watched (%s): use sbxsv reload", w->dir, strerror(errno));
	for (size_t i = 0; i < n_old; i++)
		if (!path_of(w, old[i].wd))
			(void)inotify_rm_watch(w->fd, old[i].wd);
	places_free(old, n_old);
}

static struct watch *watch_new(struct loop *l, int fd, const char *apps_dir, void (*changed)(void *data), void *data)
{
	struct watch *w = xcalloc(1, sizeof *w);

	w->loop = l;
	w->fd = fd;
	w->dir = xstrdup(apps_dir);
	w->changed = changed;
	w->data = data;
	loop_io_init(l, &w->io, fd, LOOP_READ, on_readable, w);
	loop_timer_init(l, &w->timer, on_silence, w);
	return w;
}

struct watch *watch_create(struct loop *l, const char *apps_dir, void (*changed)(void *data), void *data)
{
	struct watch *w;
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd < 0) {
		log_warning("%s cannot be watched (%s): use sbxsv reload", apps_dir, strerror(errno));
		return NULL;
	}
	w = watch_new(l, fd, apps_dir, changed, data);
	watch_renew(w);
	return w;
}

/* --- across an exec of the supervisor: a change in this moment waits in the descriptor --- */

static const struct keep_field fields[] = {
	KEEP(watch, I64, first_ms),
	KEEP(watch, TIMER, timer),
	KEEP(watch, TEXT, awaited),
};

struct js *watch_save(struct keep *k, const struct watch *w)
{
	struct js *o, *places;

	if (!w)
		return NULL;
	o = js_obj();
	places = js_arr();
	keep_fd(k, o, "fd", w->fd);
	keep_save(k, o, fields, ELEMENTS(fields), w);
	for (size_t i = 0; i < w->n; i++) {
		struct js *p = js_obj();

		js_add_int(p, "wd", w->places[i].wd);
		keep_text(k, p, "path", w->places[i].path);
		js_push(places, p);
	}
	js_add(o, "places", places);
	return o;
}

struct watch *watch_restore(struct keep *k, const struct js *o, struct loop *l, const char *apps_dir,
			    void (*changed)(void *data), void *data)
{
	int fd = keep_take_fd(k, o, "fd");
	struct watch *w;

	if (fd < 0)
		return NULL;
	w = watch_new(l, fd, apps_dir, changed, data);
	keep_load(k, o, fields, ELEMENTS(fields), w);
	for (const struct js *p = js_first(js_get(o, "places")); p; p = js_next(p)) {
		char *path = keep_get_text(k, p, "path");

		VEC_GROW(w->places, w->n, w->cap);
		w->places[w->n++] = (struct place){.wd = (int)js_int_or(p, "wd", -1), .path = path ? path : xstrdup("")};
	}
	return w;
}

void watch_destroy(struct watch *w)
{
	if (!w)
		return;
	loop_io_stop(&w->io);
	loop_timer_stop(&w->timer);
	(void)close(w->fd);
	places_free(w->places, w->n);
	free(w->awaited);
	free(w->dir);
	free(w);
}
