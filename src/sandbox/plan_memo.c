/*
 * A view of the file system that asks each question once.
 *
 * When fifty apps start, their plans ask for the same facts: where the secret places lie, what /opt holds,
 * which sockets are bound. One memo serves all plans that are made in one go.
 *
 * Why that is safe. A plan is a snapshot anyway: between its making and the mounts lies the clone of a
 * process, and what the plan found is looked at again there (RESOLVE_NO_SYMLINKS on every path, hidden places
 * by what exists at that moment); what changed in between fails the launch. A memo makes the snapshot a few
 * milliseconds older, the time of the plans before. It must not live longer than one callback of the loop:
 * whoever makes a directory and then asks for a start may count on the start seeing it, and requests are read
 * between callbacks.
 */
#include "sandbox/plan_internal.h"
#include <errno.h>
#include <string.h>

enum { SLOTS = 1024 };

struct fact {
	struct fact *next;
	char kind; /* the function of struct plan_fs, 'w' for plan_resolve() */
	int error; /* 0, or the errno */
	struct stat st;
	char *text;
	struct strv names, specials;
	struct plan_where where;
	char question[];
};

struct plan_memo {
	struct plan_fs below;
	struct fact *slots[SLOTS];
};

/* The fact, or a new one: then *ret_new. */
static struct fact *look(struct plan_memo *m, char kind, const char *question, bool *ret_new)
{
	uint32_t h = (2166136261u ^ (unsigned char)kind) * 16777619u; /* FNV-1a */
	struct fact *f;
	size_t len;

	for (const char *s = question; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	for (f = m->slots[h % SLOTS]; f; f = f->next)
		if (f->kind == kind && strcmp(f->question, question) == 0) {
			*ret_new = false;
			return f;
		}
	len = strlen(question) + 1;
	f = xcalloc(1, sizeof *f + len);
	f->kind = kind;
	memcpy(f->question, question, len);
	f->next = m->slots[h % SLOTS];
	m->slots[h % SLOTS] = f;
	*ret_new = true;
	return f;
}

static int answer(const struct fact *f)
{
	if (!f->error)
		return 0;
	errno = f->error;
	return -1;
}

static int memo_lstat(void *data, const char *path, struct stat *st)
{
	struct plan_memo *m = data;
	bool ask;
	struct fact *f = look(m, 'l', path, &ask);

	if (ask)
		f->error = m->below.lstat(m->below.data, path, &f->st) < 0 ? errno : 0;
	if (!f->error)
		*st = f->st;
	return answer(f);
}

static char *memo_readlink(void *data, const char *path)
{
	struct plan_memo *m = data;
	bool ask;
	struct fact *f = look(m, 'r', path, &ask);

	if (ask) {
		f->text = m->below.readlink(m->below.data, path);
		f->error = f->text ? 0 : errno;
	}
	return answer(f) < 0 ? NULL : xstrdup(f->text);
}

/* Not kept: it may be a file of passwords. */
static char *memo_head(void *data, const char *path, size_t max)
{
	struct plan_memo *m = data;

	return m->below.head(m->below.data, path, max);
}

static int memo_list(void *data, const char *path, struct strv *ret)
{
	struct plan_memo *m = data;
	bool ask;
	struct fact *f = look(m, 'd', path, &ask);

	if (ask)
		f->error = m->below.list(m->below.data, path, &f->names) < 0 ? errno : 0;
	strv_copy(ret, &f->names);
	return answer(f);
}

static int memo_scan(void *data, const char *path, struct strv *ret_dirs, struct strv *ret_specials)
{
	struct plan_memo *m = data;
	bool ask;
	struct fact *f = look(m, 's', path, &ask);

	if (ask)
		f->error = m->below.scan(m->below.data, path, &f->names, &f->specials) < 0 ? errno : 0;
	strv_copy(ret_dirs, &f->names);
	strv_copy(ret_specials, &f->specials);
	return answer(f);
}

static bool memo_socket_live(void *data, const char *path)
{
	struct plan_memo *m = data;

	return m->below.socket_live(m->below.data, path);
}

static int memo_bound(void *data, struct strv *ret)
{
	struct plan_memo *m = data;
	bool ask;
	struct fact *f = look(m, 'b', "", &ask);

	if (ask)
		f->error = m->below.bound(m->below.data, &f->names) < 0 ? errno : 0;
	strv_copy(ret, &f->names);
	return answer(f);
}

static char *memo_mountinfo(void *data)
{
	struct plan_memo *m = data;
	bool ask;
	struct fact *f = look(m, 'm', "", &ask);

	if (ask)
		f->text = m->below.mountinfo(m->below.data);
	return xstrdup(f->text);
}

bool plan_memo_recall(struct plan_memo *m, const char *path, struct plan_where *ret)
{
	bool ask;
	const struct fact *f = look(m, 'w', path, &ask);

	if (!f->where.path)
		return false;
	plan_where_copy(ret, &f->where);
	return true;
}

void plan_memo_keep(struct plan_memo *m, const char *path, const struct plan_where *w)
{
	bool ask;
	struct fact *f = look(m, 'w', path, &ask);

	plan_where_finish(&f->where);
	plan_where_copy(&f->where, w);
}

struct plan_memo *plan_memo_create(struct plan_fs below)
{
	struct plan_memo *m = xcalloc(1, sizeof *m);

	m->below = below;
	return m;
}

struct plan_fs plan_memo_fs(struct plan_memo *m)
{
	return (struct plan_fs){
		.lstat = memo_lstat,
		.readlink = memo_readlink,
		.head = memo_head,
		.list = memo_list,
		.scan = memo_scan,
		.socket_live = memo_socket_live,
		.bound = memo_bound,
		.mountinfo = memo_mountinfo,
		.data = m,
	};
}

void plan_memo_destroy(struct plan_memo *m)
{
	for (size_t i = 0; m && i < SLOTS; i++)
		while (m->slots[i]) {
			struct fact *f = m->slots[i];

			m->slots[i] = f->next;
			free(f->text);
			strv_clear(&f->names);
			strv_clear(&f->specials);
			plan_where_finish(&f->where);
			free(f);
		}
	free(m);
}
