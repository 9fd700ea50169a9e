#include "fake_fs.h"
#include "base/file.h"
#include <errno.h>
#include <string.h>

static struct fake_entry *find(struct fake_fs *f, const char *path)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->v[i].path, path) == 0)
			return &f->v[i];
	return NULL;
}

static struct fake_entry *put(struct fake_fs *f, const char *path)
{
	struct fake_entry *e = find(f, path);
	CLEANUP_FREE char *up = path_dirname(path);

	if (e)
		return e;
	if (strcmp(path, "/") != 0)
		(void)put(f, up);
	VEC_GROW(f->v, f->n, f->cap);
	e = &f->v[f->n++];
	*e = (struct fake_entry){.path = xstrdup(path), .mode = S_IFDIR | 0755};
	return e;
}

static mode_t mode_of(char kind)
{
	switch (kind) {
	case 'd':
		return S_IFDIR | 0755;
	case 'f':
		return S_IFREG | 0644;
	case 'x':
		return S_IFREG | 0755;
	case 'l':
		return S_IFLNK | 0777;
	case 's':
		return S_IFSOCK | 0755;
	case 'p':
		return S_IFIFO | 0644;
	case 'c':
		return S_IFCHR | 0666;
	case 'b':
		return S_IFBLK | 0660;
	default:
		return 0;
	}
}

static char *unescape(const char *s)
{
	struct strbuf b = STRBUF_INIT;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] == 'n') {
			strbuf_addc(&b, '\n');
			s++;
		} else {
			strbuf_addc(&b, *s);
		}
	}
	return strbuf_take(&b);
}

int fake_fs_add(struct fake_fs *f, const char *line)
{
	char what[32], path[512];
	unsigned uid = 0, perm = 0;
	int at = 0, n = sscanf(line, "%31s %511s %n", what, path, &at);
	const char *rest = line + at;
	mode_t mode = mode_of(what[0]);
	struct fake_entry *e;

	if (n < 2 || !mode || path[0] != '/')
		return -1;
	if (what[1] && sscanf(what + 1, ":%u:%o", &uid, &perm) < 1)
		return -1;
	e = put(f, path);
	e->mode = perm ? (mode & (mode_t)S_IFMT) | perm : mode;
	e->uid = uid;
	free(e->text);
	e->text = NULL;
	if (str_starts(rest, "-> ") || str_starts(rest, "= "))
		e->text = unescape(strchr(rest, ' ') + 1);
	else if (S_ISREG(mode) || S_ISLNK(mode))
		e->text = xstrdup("");
	e->live = strcmp(rest, "live") == 0;
	return 0;
}

static struct fake_entry *look(void *data, const char *path)
{
	struct fake_entry *e = find(data, path);
	CLEANUP_FREE char *up = path_dirname(path);
	struct fake_entry *above = find(data, up);

	if (!e)
		errno = above && !S_ISDIR(above->mode) ? ENOTDIR : ENOENT;
	return e;
}

static int fake_lstat(void *data, const char *path, struct stat *st)
{
	struct fake_entry *e = look(data, path);

	if (!e)
		return -1;
	*st = (struct stat){
		.st_mode = e->mode, .st_uid = e->uid, .st_size = e->text ? (off_t)strlen(e->text) : 0};
	return 0;
}

static char *fake_readlink(void *data, const char *path)
{
	struct fake_entry *e = look(data, path);

	if (!e)
		return NULL;
	if (!S_ISLNK(e->mode)) {
		errno = EINVAL;
		return NULL;
	}
	return xstrdup(e->text);
}

static char *fake_head(void *data, const char *path, size_t max)
{
	struct fake_entry *e = look(data, path);

	if (!e)
		return NULL;
	if (!S_ISREG(e->mode)) {
		errno = EINVAL;
		return NULL;
	}
	return xstrndup(e->text, max);
}

/* The name of the entry when it lies directly in `dir`, or NULL. */
static const char *name_in(const struct fake_entry *e, const char *dir)
{
	CLEANUP_FREE char *up = path_dirname(e->path), *plain = path_join("/", dir);

	return strcmp(e->path, "/") != 0 && strcmp(up, plain) == 0 ? path_basename(e->path) : NULL;
}

static int fake_list(void *data, const char *path, struct strv *ret)
{
	struct fake_fs *f = data;
	CLEANUP_FREE char *plain = path_join("/", path);

	if (!look(data, plain))
		return -1;
	for (size_t i = 0; i < f->n; i++)
		if (name_in(&f->v[i], plain))
			strv_add(ret, name_in(&f->v[i], plain));
	return 0;
}

static int fake_scan(void *data, const char *path, struct strv *ret_dirs, struct strv *ret_specials)
{
	struct fake_fs *f = data;

	if (!look(data, path))
		return -1;
	for (size_t i = 0; i < f->n; i++) {
		const char *name = name_in(&f->v[i], path);

		if (name && S_ISDIR(f->v[i].mode))
			strv_add(ret_dirs, name);
		else if (name && (S_ISSOCK(f->v[i].mode) || S_ISFIFO(f->v[i].mode)))
			strv_add(ret_specials, name);
	}
	return 0;
}

static bool fake_live(void *data, const char *path)
{
	struct fake_entry *e = look(data, path);

	return e && e->live;
}

static int fake_bound(void *data, struct strv *ret)
{
	struct fake_fs *f = data;

	for (size_t i = 0; i < f->n; i++)
		if (f->v[i].live)
			strv_add(ret, f->v[i].path);
	return 0;
}

/* A directory with a text is a mount: "TYPE", or "TYPE DEVICE ROOT" in the words of the kernel. */
static char *fake_mountinfo(void *data)
{
	struct fake_fs *f = data;
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < f->n; i++) {
		const char *text = f->v[i].text,
			   *more = S_ISDIR(f->v[i].mode) && text ? strchr(text, ' ') : NULL;

		if (S_ISDIR(f->v[i].mode) && text)
			strbuf_addf(&b, "%zu 1 %s %s rw - %.*s none rw\n", i + 2, more ? more + 1 : "0:1 /",
				    f->v[i].path, (int)strcspn(text, " "), text);
	}
	return strbuf_take(&b);
}

struct plan_fs fake_fs_view(struct fake_fs *f)
{
	return (struct plan_fs){
		.lstat = fake_lstat,
		.readlink = fake_readlink,
		.head = fake_head,
		.list = fake_list,
		.scan = fake_scan,
		.socket_live = fake_live,
		.bound = fake_bound,
		.mountinfo = fake_mountinfo,
		.data = f,
	};
}

void fake_fs_finish(struct fake_fs *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->v[i].path);
		free(f->v[i].text);
	}
	free(f->v);
	*f = (struct fake_fs){0};
}
