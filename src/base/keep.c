#include "base/keep.h"
#include "base/clock.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* "sbxsv-handover 1 12\n", then 12 parts, each its length, a newline, its bytes, a newline; the last is the root. */
#define MAGIC     "sbxsv-handover "
#define PARTS_MAX (1u << 20)
#define FD_MAX    (1 << 20)

struct part {
	const char *p;
	size_t len;
};
struct held {
	int fd;
	bool taken;
};
struct keep {
	/* writing */
	struct strbuf out;
	size_t n_out;
	int *fds;
	size_t n_fds, cap_fds;
	/* reading */
	char *map;
	size_t map_len;
	struct part *parts;
	size_t n_parts;
	struct js *root;
	struct held *held;
	size_t n_held;
	bool rehearsal;
	struct err *error;
};

struct keep *keep_create(void)
{
	return xcalloc(1, sizeof(struct keep));
}

void keep_destroy(struct keep *k)
{
	if (!k)
		return;
	strbuf_finish(&k->out);
	free(k->fds);
	if (k->map)
		(void)munmap(k->map, k->map_len);
	free(k->parts);
	js_free(k->root);
	free(k->held);
	err_free(k->error);
	free(k);
}

/* --- writing --- */

static void note_fd(struct keep *k, int fd)
{
	VEC_GROW(k->fds, k->n_fds, k->cap_fds);
	k->fds[k->n_fds++] = fd;
}

void keep_fd(struct keep *k, struct js *o, const char *key, int fd)
{
	if (fd < 0)
		return;
	note_fd(k, fd);
	js_add_int(o, key, fd);
}

void keep_push_fd(struct keep *k, struct js *list, int fd)
{
	note_fd(k, fd);
	js_push_int(list, fd);
}

static int64_t add_part(struct keep *k, const void *data, size_t len)
{
	strbuf_addf(&k->out, "%zu\n", len);
	strbuf_add(&k->out, data, len);
	strbuf_addc(&k->out, '\n');
	return (int64_t)k->n_out++;
}

void keep_bytes(struct keep *k, struct js *o, const char *key, const void *data, size_t len)
{
	if (len)
		js_add_int(o, key, add_part(k, data, len));
}

/* JSON carries text only, and what is not would come back as another one. */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s >= 0x80)
			return false;
	return true;
}

void keep_text(struct keep *k, struct js *o, const char *key, const char *text)
{
	if (text && is_plain(text))
		js_add_str(o, key, text);
	else if (text)
		keep_bytes(k, o, key, text, strlen(text));
}

void keep_u64(struct js *o, const char *key, uint64_t n)
{
	char text[24];

	if (n < UINT64_C(1) << 53) {
		js_add_int(o, key, (int64_t)n);
		return;
	}
	(void)snprintf(text, sizeof text, "%" PRIu64, n);
	js_add_str(o, key, text);
}

void keep_js(struct keep *k, struct js *o, const char *key, struct js *value)
{
	CLEANUP_FREE char *text = js_print(value);

	js_free(value);
	js_add_int(o, key, add_part(k, text, strlen(text)));
}

int keep_write(struct keep *k, struct js *root, struct err **e)
{
	CLEANUP_JS struct js *own = root;
	struct js *fds = js_arr();
	CLEANUP_FREE char *text = NULL, *head = NULL;
	CLEANUP_FD int fd = fd_memory("sbxsvd-handover");

	for (size_t i = 0; i < k->n_fds; i++)
		js_push_int(fds, k->fds[i]);
	js_add(own, "fds", fds);
	text = js_print(own);
	(void)add_part(k, text, strlen(text));
	head = xasprintf(MAGIC "%d %zu\n", KEEP_VERSION, k->n_out);
	if (fd < 0 || fd_write_all(fd, head, strlen(head)) < 0 ||
	    fd_write_all(fd, k->out.p, k->out.len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(e, errno, "what is to be handed over cannot be written down");
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	return TAKE_FD(fd);
}

int keep_inherit(const struct keep *k, bool on, struct err **e)
{
	for (size_t i = 0; i < k->n_fds; i++)
		if (fcntl(k->fds[i], F_SETFD, on ? 0 : FD_CLOEXEC) < 0)
			return err_sys(e, errno, "descriptor %d cannot be handed over", k->fds[i]);
	return 0;
}

/* --- reading --- */

void keep_wrong(struct keep *k, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	if (k->error)
		return;
	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	(void)err_set(&k->error, EPROTO, "%s", text);
}

bool keep_error(const struct keep *k, struct err **e)
{
	if (k->error)
		(void)err_set(e, err_code(k->error), "%s", err_msg(k->error));
	return k->error != NULL;
}

bool keep_is_rehearsal(const struct keep *k)
{
	return k->rehearsal;
}

const struct js *keep_root(const struct keep *k)
{
	return k->root;
}

/* A decimal number and the byte behind it. */
static bool number(const char **p, const char *end, char after, size_t *ret)
{
	size_t n = 0;
	const char *at = *p;

	for (; at < end && *at >= '0' && *at <= '9' && n < SIZE_MAX / 20; at++)
		n = n * 10 + (size_t)(*at - '0');
	if (at == *p || at == end || *at != after)
		return false;
	*p = at + 1;
	*ret = n;
	return true;
}

static int find_parts(struct keep *k, struct err **e)
{
	const char *p = k->map, *end = k->map + k->map_len;
	size_t version, n, len;

	if (k->map_len < strlen(MAGIC) || memcmp(p, MAGIC, strlen(MAGIC)) != 0)
		return err_set(e, EPROTO, "this is nothing that a sbxsvd handed over");
	p += strlen(MAGIC);
	if (!number(&p, end, ' ', &version) || !number(&p, end, '\n', &n) || !n || n > PARTS_MAX)
		return err_set(e, EPROTO, "what was handed over is damaged");
	if (version != KEEP_VERSION)
		return err_set(e, EPROTONOSUPPORT,
			       "what was handed over is of version %zu, and this sbxsvd understands %d only",
			       version, KEEP_VERSION);
	k->parts = xcalloc(n, sizeof *k->parts);
	for (; k->n_parts < n; k->n_parts++) {
		if (!number(&p, end, '\n', &len) || len >= (size_t)(end - p) || p[len] != '\n')
			return err_set(e, EPROTO, "what was handed over is cut off");
		k->parts[k->n_parts] = (struct part){p, len};
		p += len + 1;
	}
	return 0;
}

static int compare_held(const void *a, const void *b)
{
	return ((const struct held *)a)->fd - ((const struct held *)b)->fd;
}

static int read_root(struct keep *k, struct err **e)
{
	const struct part *last = &k->parts[k->n_parts - 1];
	const struct js *fds;

	k->root = js_parse(last->p, last->len, e);
	fds = js_get(k->root, "fds");
	if (!k->root || !js_is_arr(fds))
		return err_wrap(e, "what was handed over");
	k->held = xcalloc(js_len(fds), sizeof *k->held);
	for (const struct js *v = js_first(fds); v; v = js_next(v)) {
		int64_t fd;

		if (js_value_int(v, &fd) < 0 || fd < 3 || fd > FD_MAX)
			return err_set(e, EPROTO, "a descriptor that was handed over is none");
		k->held[k->n_held++].fd = (int)fd;
	}
	if (k->n_held)
		qsort(k->held, k->n_held, sizeof *k->held, compare_held);
	for (size_t i = 1; i < k->n_held; i++)
		if (k->held[i].fd == k->held[i - 1].fd)
			return err_set(e, EPROTO, "descriptor %d was handed over twice", k->held[i].fd);
	return 0;
}

struct keep *keep_open(int fd, bool rehearsal, struct err **e)
{
	struct keep *k = keep_create();
	struct stat st;

	k->rehearsal = rehearsal;
	if (fstat(fd, &st) < 0 || st.st_size <= 0) {
		(void)err_set(e, EINVAL, "descriptor %d has nothing that was handed over", fd);
		goto failed;
	}
	k->map_len = (size_t)st.st_size;
	k->map = mmap(NULL, k->map_len, PROT_READ, MAP_PRIVATE, fd, 0);
	if (k->map == MAP_FAILED) {
		k->map = NULL;
		(void)err_sys(e, errno, "what was handed over cannot be read");
		goto failed;
	}
	if (find_parts(k, e) < 0 || read_root(k, e) < 0)
		goto failed;
	return k;
failed:
	keep_destroy(k);
	return NULL;
}

void keep_only(const struct keep *k)
{
	unsigned from = 3;

	if (k->rehearsal)
		return;
	for (size_t i = 0; i <= k->n_held; i++) {
		unsigned next = i < k->n_held ? (unsigned)k->held[i].fd : ~0u;

		if (next > from)
			(void)syscall(SYS_close_range, from, i < k->n_held ? next - 1 : ~0u,
				      0u); /* kernel 5.9 */
		from = next + 1;
		if (i < k->n_held)
			(void)fcntl(k->held[i].fd, F_SETFD, FD_CLOEXEC);
	}
}

static bool take(struct keep *k, const struct js *value, const char *key, int *ret)
{
	struct held want = {.fd = -1}, *h = NULL;
	int64_t fd;

	if (k->error || !value)
		return false;
	if (js_value_int(value, &fd) == 0 && fd >= 0 && fd <= FD_MAX) {
		want.fd = (int)fd;
		h = bsearch(&want, k->held, k->n_held, sizeof want, compare_held);
	}
	if (!h || h->taken || (!k->rehearsal && fcntl(h->fd, F_GETFD) < 0)) {
		keep_wrong(k, "the descriptor \"%s\" %s", key,
			   h && h->taken ? "is taken already" : "was not handed over");
		return false;
	}
	h->taken = true;
	*ret = h->fd;
	return true;
}

static int stand_in(struct keep *k, int fd)
{
	if (fd < 0)
		keep_wrong(k, "no descriptor can be made: %s", strerror(errno));
	return fd;
}

int keep_take_value(struct keep *k, const struct js *value)
{
	int fd = -1;

	if (!take(k, value, "of a list", &fd))
		return -1;
	return k->rehearsal ? stand_in(k, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) : fd;
}

int keep_take_fd(struct keep *k, const struct js *o, const char *key)
{
	int fd = -1;

	if (!take(k, js_get(o, key), key, &fd))
		return -1;
	return k->rehearsal ? stand_in(k, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) : fd;
}

int keep_take_mapped(struct keep *k, const struct js *o, const char *key, size_t len)
{
	int fd = -1;

	if (!take(k, js_get(o, key), key, &fd))
		return -1;
	if (!k->rehearsal)
		return fd;
	fd = stand_in(k, fd_memory("sbxsvd-rehearsal"));
	if (fd >= 0 && ftruncate(fd, (off_t)len) < 0)
		keep_wrong(k, "no memory: %s", strerror(errno));
	return fd;
}

static const struct part *part_of(struct keep *k, const struct js *value, const char *key)
{
	int64_t i;

	if (k->error || !value)
		return NULL;
	if (js_value_int(value, &i) < 0 || i < 0 || (size_t)i >= k->n_parts) {
		keep_wrong(k, "\"%s\" is not what it should be", key);
		return NULL;
	}
	return &k->parts[i];
}

const char *keep_get_bytes(struct keep *k, const struct js *o, const char *key, size_t *ret_len)
{
	const struct part *p = part_of(k, js_get(o, key), key);

	*ret_len = p ? p->len : 0;
	return p ? p->p : "";
}

char *keep_get_text(struct keep *k, const struct js *o, const char *key)
{
	const struct js *v = js_get(o, key);
	const struct part *p;

	if (k->error || !v)
		return NULL;
	if (js_value_str(v))
		return xstrdup(js_value_str(v));
	p = part_of(k, v, key);
	return p ? xstrndup(p->p, p->len) : NULL;
}

uint64_t keep_get_u64(struct keep *k, const struct js *o, const char *key)
{
	const struct js *v = js_get(o, key);
	const char *text = js_value_str(v);
	uint64_t n = 0;
	int64_t i;

	if (k->error || !v)
		return 0;
	if (text && sscanf(text, "%" SCNu64, &n) == 1)
		return n;
	if (js_value_int(v, &i) == 0 && i >= 0)
		return (uint64_t)i;
	keep_wrong(k, "\"%s\" is no number", key);
	return 0;
}

struct js *keep_get_js(struct keep *k, const struct js *o, const char *key)
{
	const struct part *p = part_of(k, js_get(o, key), key);
	CLEANUP_ERR struct err *e = NULL;
	struct js *j;

	if (!p)
		return NULL;
	j = js_parse(p->p, p->len, &e);
	if (!j)
		keep_wrong(k, "\"%s\": %s", key, err_msg(e));
	return j;
}

size_t keep_close_rest(struct keep *k)
{
	size_t n = 0;

	for (size_t i = 0; i < k->n_held; i++)
		if (!k->held[i].taken) {
			k->held[i].taken = true;
			n++;
			if (!k->rehearsal)
				(void)close(k->held[i].fd);
		}
	return n;
}

/* --- fields of a struct --- */

static void save_strv(struct keep *k, struct js *o, const char *key, const struct strv *l)
{
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < l->n; i++)
		strbuf_add(&b, l->v[i], strlen(l->v[i]) + 1);
	keep_bytes(k, o, key, b.p, b.len);
	strbuf_finish(&b);
}

static void load_strv(struct keep *k, const struct js *o, const char *key, struct strv *l)
{
	size_t len;
	const char *p = keep_get_bytes(k, o, key, &len), *end = p + len, *nul;

	for (; p < end && (nul = memchr(p, 0, (size_t)(end - p))); p = nul + 1)
		strv_add(l, p);
}

static void save_one(struct keep *k, struct js *o, const struct keep_field *f, const void *at)
{
	switch (f->type) {
	case KEEP_BOOL:
		if (*(const bool *)at)
			js_add_bool(o, f->name, true);
		break;
	case KEEP_INT:
		if (*(const int *)at)
			js_add_int(o, f->name, *(const int *)at);
		break;
	case KEEP_UINT:
		if (*(const unsigned *)at)
			js_add_int(o, f->name, *(const unsigned *)at);
		break;
	case KEEP_U16:
		if (*(const uint16_t *)at)
			js_add_int(o, f->name, *(const uint16_t *)at);
		break;
	case KEEP_I64:
		if (*(const int64_t *)at)
			js_add_int(o, f->name, *(const int64_t *)at);
		break;
	case KEEP_U64:
		if (*(const uint64_t *)at)
			keep_u64(o, f->name, *(const uint64_t *)at);
		break;
	case KEEP_TEXT:
		keep_text(k, o, f->name, *(char *const *)at);
		break;
	case KEEP_STRV:
		save_strv(k, o, f->name, at);
		break;
	case KEEP_FD:
		keep_fd(k, o, f->name, *(const int *)at);
		break;
	case KEEP_TIMER:
		if (loop_timer_active(at))
			js_add_int(o, f->name, loop_timer_due_ms(at));
		break;
	}
}

void keep_save(struct keep *k, struct js *o, const struct keep_field *f, size_t n, const void *base)
{
	for (size_t i = 0; i < n; i++)
		save_one(k, o, &f[i], (const char *)base + f[i].offset);
}

static int64_t whole(struct keep *k, const struct js *o, const char *key, int64_t lo, int64_t hi)
{
	const struct js *v = js_get(o, key);
	int64_t n = 0;

	if (k->error || !v)
		return 0;
	if (js_value_int(v, &n) < 0 || n < lo || n > hi) {
		keep_wrong(k, "\"%s\" is no number that it can be", key);
		return 0;
	}
	return n;
}

static void load_one(struct keep *k, const struct js *o, const struct keep_field *f, void *at)
{
	int64_t due;

	switch (f->type) {
	case KEEP_BOOL:
		*(bool *)at = js_bool_or(o, f->name, false);
		break;
	case KEEP_INT:
		*(int *)at = (int)whole(k, o, f->name, INT32_MIN, INT32_MAX);
		break;
	case KEEP_UINT:
		*(unsigned *)at = (unsigned)whole(k, o, f->name, 0, UINT32_MAX);
		break;
	case KEEP_U16:
		*(uint16_t *)at = (uint16_t)whole(k, o, f->name, 0, UINT16_MAX);
		break;
	case KEEP_I64:
		*(int64_t *)at = whole(k, o, f->name, INT64_MIN, INT64_MAX);
		break;
	case KEEP_U64:
		*(uint64_t *)at = keep_get_u64(k, o, f->name);
		break;
	case KEEP_TEXT:
		*(char **)at = keep_get_text(k, o, f->name);
		break;
	case KEEP_STRV:
		load_strv(k, o, f->name, at);
		break;
	case KEEP_FD:
		*(int *)at = keep_take_fd(k, o, f->name);
		break;
	case KEEP_TIMER:
		due = whole(k, o, f->name, 0, INT64_MAX);
		if (due)
			loop_timer_start(at, due - clk_mono_ms());
		break;
	}
}

void keep_load(struct keep *k, const struct js *o, const struct keep_field *f, size_t n, void *base)
{
	for (size_t i = 0; i < n; i++)
		load_one(k, o, &f[i], (char *)base + f[i].offset);
}
