#include "logs/logs_internal.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/linefile.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#define CHUNK     (64u << 10) /* pipe(7): the default capacity of a pipe */
#define PIPES_MAX 64          /* one a process; more when somebody still holds those of earlier ones */
#define SOON_MS   100
#define RETRY_MS  2000 /* during a streak of losses: how often room is looked for without new output */

static char *loss_mark(void *data, uint64_t lines, uint64_t bytes, const char *error)
{
	(void)data;
	return xasprintf("[sbxsv] %llu lines (%llu bytes) are missing here: %s\n", (unsigned long long)lines,
			 (unsigned long long)bytes, error);
}

static void on_trouble(void *data, const char *what)
{
	struct logs *l = data;

	if (l->trouble)
		l->trouble(l->trouble_data, what);
}

static void retry_cb(struct loop_timer *w)
{
	struct logs *l = w->data;

	if (!linefile_retry(l->file))
		loop_timer_start(w, RETRY_MS);
}

static void soon_cb(struct loop_timer *w);
static void flush(struct logs *l);

/* All that is known of the lines in a file that is there already: when its last one was written. */
static void note_found(struct logs *l)
{
	const struct stat *st = linefile_found(l->file);

	if (st)
		times_add(&l->times, st->st_ino, (uint64_t)st->st_size,
			  st->st_mtim.tv_sec * INT64_C(1000) + st->st_mtim.tv_nsec / 1000000, false);
}

static const struct linefile_hooks hooks_of_all = {.mark = loss_mark, .trouble = on_trouble};

static void open_target(struct logs *l, const struct logs_config *c)
{
	struct linefile_hooks hooks = hooks_of_all;

	hooks.data = l;
	l->target = c->target;
	if (c->target != LOGS_FILE)
		l->sink = sink_create(l->loop, c->target == LOGS_SYSLOG ? SINK_SYSLOG : SINK_JOURNAL,
				      c->app ? c->app : "", c->socket, &hooks);
}

static void close_target(struct logs *l)
{
	if (!l->sink)
		return;
	sink_close(l->sink);
	l->sunk_lines += sink_dropped_lines(l->sink);
	l->sunk_bytes += sink_dropped_bytes(l->sink);
	sink_destroy(l->sink);
	l->sink = NULL;
}

struct logs *logs_create(struct loop *loop, const struct logs_config *c, struct err **e)
{
	struct logs *l = xcalloc(1, sizeof *l);
	struct linefile_hooks hooks = hooks_of_all;
	struct linefile_config fc = {
		.dir = c->dir, .file = c->file, .max_size = c->max_size, .max_files = c->max_files};

	(void)e;
	l->loop = loop;
	hooks.data = l;
	open_target(l, c);
	l->timestamps = c->timestamps;
	l->max_files = c->max_files;
	l->file = linefile_create(&fc, &hooks);
	note_found(l);
	loop_timer_init(loop, &l->retry, retry_cb, l);
	loop_timer_init(loop, &l->soon, soon_cb, l);
	return l;
}

void logs_configure(struct logs *l, const struct logs_config *c)
{
	struct linefile_config fc = {
		.dir = c->dir, .file = c->file, .max_size = c->max_size, .max_files = c->max_files};
	CLEANUP_FREE char *was = xstrdup(linefile_path(l->file));

	flush(l);
	if (l->target != c->target) {
		close_target(l);
		open_target(l, c);
	}
	l->timestamps = c->timestamps;
	l->max_files = c->max_files;
	linefile_configure(l->file, &fc);
	if (!str_eq(was, linefile_path(l->file)))
		note_found(l);
}

void logs_set_trouble(struct logs *l, logs_trouble_fn *fn, void *data)
{
	l->trouble = fn;
	l->trouble_data = data;
}

/* --- lines out --- */

static void sweep_followers(struct logs *l)
{
	struct logs_follow **at = &l->followers, *f;

	while ((f = *at)) {
		if (f->fn) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		free(f);
	}
}

static void hand_out(struct logs *l, const char *line, size_t len)
{
	if (!l->followers)
		return;
	l->handing_out++;
	for (struct logs_follow *f = l->followers; f; f = f->next)
		if (f->fn)
			f->fn(f->data, line, len);
	if (--l->handing_out == 0)
		sweep_followers(l);
}

/* One whole line, without its newline, into the batch and the ring. */
static void put_line(struct logs *l, const char *prefix, const char *text, size_t len, const char *suffix)
{
	size_t at = l->out.len;
	char stamp[CLK_STAMP_LEN];
	int64_t now = clk_wall_ms();

	if (l->timestamps) {
		strbuf_adds(&l->out, clk_stamp(now, stamp, sizeof stamp));
		strbuf_addc(&l->out, ' ');
	}
	strbuf_adds(&l->out, prefix);
	strbuf_add(&l->out, text, len);
	strbuf_adds(&l->out, suffix);
	strbuf_addc(&l->out, '\n');
	ring_add(&l->ring, l->out.p + at, l->out.len - at - 1, now);
	l->lines++;
}

static void write_file(struct logs *l, const struct strbuf *out)
{
	uint64_t ino, size;

	if (linefile_write(l->file, out->p, out->len) < 0 && !loop_timer_active(&l->retry))
		loop_timer_start(&l->retry, RETRY_MS);
	if (linefile_at(l->file, &ino, &size))
		times_add(&l->times, ino, size, clk_wall_ms(), true);
}

/* The batch goes to the file first: what a follower was told is on disk if it can be. */
static void flush(struct logs *l)
{
	struct strbuf out = l->out;

	if (!out.len)
		return;
	l->out = (struct strbuf)STRBUF_INIT;
	loop_timer_stop(&l->soon);
	if (l->sink)
		(void)sink_write(l->sink, out.p, out.len);
	else
		write_file(l, &out);
	for (char *p = out.p, *nl; l->followers && (nl = memchr(p, '\n', out.len - (size_t)(p - out.p)));
	     p = nl + 1)
		hand_out(l, p, (size_t)(nl - p));
	strbuf_finish(&out);
}

void logs_note(struct logs *l, const char *text)
{
	put_line(l, "[sbxsv] ", text, strlen(text), "");
	flush(l);
}

void logs_note_soon(struct logs *l, const char *text)
{
	put_line(l, "[sbxsv] ", text, strlen(text), "");
	loop_timer_start(&l->soon, SOON_MS);
}

static void soon_cb(struct loop_timer *w)
{
	flush(w->data);
}

/* --- bytes in --- */

static void cut_lines(struct pipe_in *p, const char *data, size_t len)
{
	while (len) {
		const char *nl = memchr(data, '\n', len);
		size_t part = nl ? (size_t)(nl - data) : len, room = LOGS_LINE_MAX - p->half.len;

		if (part > room) {
			strbuf_add(&p->half, data, room);
			put_line(p->logs, p->mark, p->half.p, p->half.len, LOGS_SPLIT);
			strbuf_reset(&p->half);
			data += room;
			len -= room;
			continue;
		}
		if (!nl) {
			strbuf_add(&p->half, data, part);
			return;
		}
		if (p->half.len) {
			strbuf_add(&p->half, data, part);
			put_line(p->logs, p->mark, p->half.p, p->half.len, "");
			strbuf_finish(&p->half);
		} else {
			put_line(p->logs, p->mark, data, part, "");
		}
		data += part + 1;
		len -= part + 1;
	}
}

static void pipe_free(struct pipe_in *p)
{
	struct pipe_in **at = &p->logs->pipes;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	loop_io_stop(&p->io);
	(void)close(p->fd);
	strbuf_finish(&p->half);
	free(p->mark);
	free(p);
}

static void end_half(struct pipe_in *p)
{
	if (p->half.len)
		put_line(p->logs, p->mark, p->half.p, p->half.len, "");
	strbuf_finish(&p->half);
}

/* One chunk. False when there is nothing (more) in it; the pipe may be gone then. */
static bool read_chunk(struct pipe_in *p)
{
	static char chunk[CHUNK]; /* shared: nothing of it is kept */
	struct logs *l = p->logs;
	ssize_t n;

	do
		n = read(p->fd, chunk, sizeof chunk);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (n <= 0) {
		end_half(p);
		pipe_free(p);
		flush(l);
		return false;
	}
	l->bytes += (uint64_t)n;
	cut_lines(p, chunk, (size_t)n);
	flush(l);
	return true;
}

void logs_readable(struct loop_io *w, unsigned events)
{
	(void)events;
	(void)read_chunk(w->data);
}

/* A process ends, but what it handed its output to may not: a daemon without a jail, or another app that was
 * given the descriptor. Without a bound each restart would leave one more pipe here. */
static void drop_old_pipes(struct logs *l)
{
	struct pipe_in *p = l->pipes, *next;

	for (unsigned n = 1; p && n < PIPES_MAX; n++)
		p = p->next;
	for (; p; p = next) {
		next = p->next;
		end_half(p);
		pipe_free(p);
	}
	flush(l);
}

int logs_open_pipe(struct logs *l, struct err **e)
{
	return logs_open_pipe_marked(l, "", e);
}

int logs_open_pipe_marked(struct logs *l, const char *mark, struct err **e)
{
	struct pipe_in *p;
	int ends[2];

	drop_old_pipes(l);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "cannot make the pipe of the log");
	if (fd_set_nonblock(ends[0], true) < 0) {
		int saved = errno;

		fd_close_many(ends, 2);
		return err_sys(e, saved, "cannot set up the pipe of the log");
	}
	p = xcalloc(1, sizeof *p);
	p->logs = l;
	p->fd = ends[0];
	p->mark = xstrdup(mark);
	p->next = l->pipes;
	l->pipes = p;
	loop_io_init(l->loop, &p->io, p->fd, LOOP_READ, logs_readable, p);
	return ends[1];
}

void logs_drain(struct logs *l)
{
	struct pipe_in *next;

	for (struct pipe_in *p = l->pipes; p; p = next) {
		int left = 0;

		next = p->next;
		/* Only what is there now: a writer that never stops must not keep us. EOF shows as 0 bytes.
		 */
		(void)ioctl(p->fd, FIONREAD, &left);
		while (read_chunk(p) && (left -= (int)CHUNK) > 0)
			;
	}
}

/* --- looking back --- */

static char *without_nul(const char *text, size_t len)
{
	struct strbuf b = STRBUF_INIT;
	const char *end = text + len;

	for (const char *nul; (nul = memchr(text, 0, (size_t)(end - text))); text = nul + 1) {
		strbuf_add(&b, text, (size_t)(nul - text));
		strbuf_adds(&b, "\\x00");
	}
	strbuf_add(&b, text, (size_t)(end - text));
	return strbuf_take(&b);
}

/* The last `n` lines an earlier run of the supervisor left in the file. */
static void earlier_lines(const struct logs *l, size_t n, struct strv *ret)
{
	size_t len = 0, lines = 0, skip;
	CLEANUP_FREE char *text = linefile_earlier(l->file, RING_BYTES, &len);
	const char *p = text, *nl;

	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	skip = lines > n ? lines - n : 0;
	for (; p && (nl = memchr(p, '\n', len - (size_t)(p - text))); p = nl + 1) {
		if (skip)
			skip--;
		else
			strv_take(ret, without_nul(p, (size_t)(nl - p)));
	}
}

void logs_tail(const struct logs *l, size_t n, struct strv *ret)
{
	if (n > RING_LINES)
		n = RING_LINES;
	if (l->lines < n && !l->sink)
		earlier_lines(l, n - (size_t)l->lines, ret);
	for (size_t i = l->ring.n > n ? l->ring.n - n : 0; i < l->ring.n; i++)
		strv_take(ret, without_nul(ring_at(&l->ring, i)->text, ring_at(&l->ring, i)->len));
}

struct logs_back *logs_back_start(struct logs *l, size_t n, int64_t since_ms)
{
	struct back_source s = {.ring = &l->ring,
				.times = &l->times,
				.path = linefile_path(l->file),
				.max_files = l->max_files,
				.stamps = l->timestamps};

	flush(l);
	if (l->sink || linefile_losing(l->file)) /* the newest lines are not there */
		s.path = NULL;
	return back_open(&s, n, since_ms);
}

void logs_split_stamp(const struct logs *l, struct back_line *line)
{
	back_split_stamp(l->timestamps, line);
}

void logs_stats(const struct logs *l, struct logs_stats *ret)
{
	*ret = (struct logs_stats){.lines = l->lines,
				   .bytes = l->bytes,
				   .dropped_bytes = linefile_dropped_bytes(l->file) + l->sunk_bytes,
				   .dropped_lines = linefile_dropped_lines(l->file) + l->sunk_lines,
				   .last_error = linefile_error(l->file),
				   .losing = linefile_losing(l->file)};
	if (!l->sink)
		return;
	ret->dropped_bytes += sink_dropped_bytes(l->sink);
	ret->dropped_lines += sink_dropped_lines(l->sink);
	ret->last_error = sink_error(l->sink);
	ret->losing = sink_losing(l->sink);
}

struct logs_follow *logs_follow_start(struct logs *l, logs_line_fn *fn, void *data)
{
	struct logs_follow *f = xcalloc(1, sizeof *f), **at = &l->followers;

	flush(l); /* what waits in the batch is in the ring already: it would come twice */
	while (*at)
		at = &(*at)->next;
	*at = f;
	f->logs = l;
	f->fn = fn;
	f->data = data;
	return f;
}

void logs_follow_stop(struct logs_follow *f)
{
	f->fn = NULL;
	if (!f->logs->handing_out)
		sweep_followers(f->logs);
}

const char *logs_path(const struct logs *l)
{
	return l->sink ? NULL : linefile_path(l->file);
}

static const char *const target_names[] = {
	[LOGS_FILE] = "file", [LOGS_SYSLOG] = "syslog", [LOGS_JOURNAL] = "journal"};

const char *logs_target_name(const struct logs *l)
{
	return target_names[l->target];
}

bool logs_target_find(const char *name, enum logs_target *ret)
{
	for (size_t i = 0; name && i < ELEMENTS(target_names); i++)
		if (strcmp(name, target_names[i]) == 0) {
			*ret = (enum logs_target)i;
			return true;
		}
	return false;
}

void logs_destroy(struct logs *l)
{
	if (!l)
		return;
	logs_drain(l);
	while (l->pipes) {
		end_half(l->pipes);
		pipe_free(l->pipes);
	}
	flush(l);
	loop_timer_stop(&l->retry);
	loop_timer_stop(&l->soon);
	while (l->followers) {
		struct logs_follow *f = l->followers;

		l->followers = f->next;
		if (f->fn)
			f->fn(f->data, NULL, 0);
		free(f);
	}
	close_target(l);
	linefile_destroy(l->file);
	ring_finish(&l->ring);
	times_finish(&l->times);
	strbuf_finish(&l->out);
	free(l);
}
