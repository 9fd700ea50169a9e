#include "logs/back.h"
#include "base/clock.h"
#include "base/str.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK     ((size_t)64 << 10)
#define PIECE_MAX ((size_t)256 << 10) /* a longer line (sbxsv writes none) comes in pieces */
#define STAMP     (CLK_STAMP_LEN - 1)

struct back_file {
	int fd;
	uint64_t start, end; /* the lines to show */
	int64_t mtime_ms;
	size_t lo, hi; /* its marks */
};

struct logs_back {
	struct times times;
	bool stamps;
	struct back_file v[BACK_FILES]; /* newest first */
	size_t n;                       /* files left; v[n - 1] is being read */
	uint64_t read;                  /* of it, up to here in buf */
	struct strbuf buf;
	size_t taken; /* of buf */
	/* or the ring: lines of buf */
	struct {
		size_t len;
		int64_t ms;
	} ring[RING_LINES];
	size_t n_ring, at_ring;
};

void back_split_stamp(bool stamps, struct back_line *l)
{
	int64_t ms;

	l->stamp = l->text;
	if (!stamps || l->len <= STAMP || l->text[STAMP] != ' ' || clk_parse_stamp(l->text, STAMP, &ms))
		return;
	l->ms = ms;
	l->text += STAMP + 1;
	l->len -= STAMP + 1;
}

static ssize_t read_at(int fd, char *buf, size_t len, uint64_t at)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, buf + done, len - done, (off_t)(at + done));

		if (n <= 0) /* no signal handler of ours interrupts a read of a regular file */
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* --- from the end on, to where it begins --- */

/* When a line was written, as far as that is known without reading more of it than its stamp. */
static int64_t time_of(const struct logs_back *b, const struct back_file *f, uint64_t start, uint64_t end)
{
	const struct time_mark *m = times_find(&b->times, f->lo, f->hi, end);
	char stamp[STAMP];
	int64_t ms;

	if (b->stamps && end - start > STAMP && read_at(f->fd, stamp, STAMP, start) == STAMP &&
	    !clk_parse_stamp(stamp, STAMP, &ms))
		return ms;
	return m ? m->ms : f->mtime_ms;
}

struct search {
	size_t lines; /* still wanted */
	uint64_t bytes;
	int64_t since_ms;
	bool over;
};

/* One more line in front, or the end of the search. */
static void take(struct logs_back *b, struct back_file *f, struct search *s, uint64_t start)
{
	if (s->lines == 0 || (s->since_ms && time_of(b, f, start, f->start) < s->since_ms)) {
		s->over = true;
		return;
	}
	f->start = start;
	s->lines--;
}

static void search_file(struct logs_back *b, struct back_file *f, struct search *s)
{
	CLEANUP_FREE char *block = xmalloc(BLOCK);
	uint64_t pos = f->end;

	/* the last byte is the newline of the last line, or there is a line without one */
	while (pos > 0 && !s->over) {
		size_t len = pos > BLOCK ? BLOCK : (size_t)pos;
		char *nl;

		if (s->bytes < len || read_at(f->fd, block, len, pos - len) != (ssize_t)len) {
			s->over = true;
			return;
		}
		s->bytes -= len;
		pos -= len;
		while (len && !s->over && (nl = memrchr(block, '\n', len))) {
			len = (size_t)(nl - block);
			if (pos + len + 1 < f->end)
				take(b, f, s, pos + len + 1);
		}
	}
	if (pos == 0 && !s->over && f->end > 0)
		take(b, f, s, 0);
}

static int open_one(const char *path, struct back_file *f, const struct times *t)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -1;
	f->start = f->end = (uint64_t)st.st_size;
	f->mtime_ms = st.st_mtim.tv_sec * INT64_C(1000) + st.st_mtim.tv_nsec / 1000000;
	times_of_file(t, st.st_ino, &f->lo, &f->hi);
	f->fd = TAKE_FD(fd);
	return 0;
}

/* Returns how many lines there are to show. */
static size_t search_files(struct logs_back *b, const struct back_source *src, size_t n, int64_t since_ms)
{
	struct search s = {.lines = n, .bytes = BACK_BYTES, .since_ms = since_ms};

	for (unsigned i = 0; i < src->max_files && b->n < BACK_FILES && s.lines && !s.over; i++) {
		CLEANUP_FREE char *path = i ? xasprintf("%s.%u", src->path, i) : xstrdup(src->path);
		struct back_file *f = &b->v[b->n];

		if (open_one(path, f, &b->times) < 0)
			continue; /* a file that somebody took away */
		b->n++;
		search_file(b, f, &s);
	}
	if (b->n)
		b->read = b->v[b->n - 1].start;
	return n - s.lines;
}

static void close_files(struct logs_back *b)
{
	while (b->n)
		(void)close(b->v[--b->n].fd);
}

/* The lines of the ring instead, if it has more of what is wanted. */
static void take_ring(struct logs_back *b, const struct ring *r, size_t n, int64_t since_ms, size_t have)
{
	size_t from = r->n;

	while (from > 0 && r->n - from < n && (!since_ms || ring_at(r, from - 1)->ms >= since_ms))
		from--;
	if (r->n - from <= have)
		return;
	close_files(b);
	for (size_t i = from; i < r->n; i++) {
		const struct ring_line *l = ring_at(r, i);

		strbuf_add(&b->buf, l->text, l->len);
		b->ring[b->n_ring].len = l->len;
		b->ring[b->n_ring++].ms = l->ms;
	}
}

struct logs_back *back_open(const struct back_source *s, size_t n, int64_t since_ms)
{
	struct logs_back *b = xcalloc(1, sizeof *b);
	size_t found = 0;

	b->stamps = s->stamps;
	times_copy(&b->times, s->times);
	if (s->path)
		found = search_files(b, s, n, since_ms);
	take_ring(b, s->ring, n, since_ms, found);
	return b;
}

/* --- forward --- */

static bool next_of_ring(struct logs_back *b, struct back_line *ret)
{
	if (b->at_ring == b->n_ring)
		return false;
	ret->text = b->buf.p ? b->buf.p + b->taken : "";
	ret->len = b->ring[b->at_ring].len;
	ret->ms = b->ring[b->at_ring++].ms;
	b->taken += ret->len;
	back_split_stamp(b->stamps, ret);
	return true;
}

/* More of the file into buf. False at its end. */
static bool read_more(struct logs_back *b, struct back_file *f)
{
	uint64_t left = f->end - b->read;
	size_t want = left > BLOCK ? BLOCK : (size_t)left;
	CLEANUP_FREE char *block = NULL;
	ssize_t n;

	if (!want)
		return false;
	if (b->taken) {
		memmove(b->buf.p, b->buf.p + b->taken, b->buf.len - b->taken);
		b->buf.len -= b->taken;
		b->taken = 0;
	}
	block = xmalloc(want);
	n = read_at(f->fd, block, want, b->read);
	if (n <= 0) {
		f->end = b->read; /* somebody emptied it */
		return false;
	}
	strbuf_add(&b->buf, block, (size_t)n);
	b->read += (uint64_t)n;
	return true;
}

static void give(struct logs_back *b, struct back_file *f, size_t len, bool newline, struct back_line *ret)
{
	const struct time_mark *m;

	ret->text = b->buf.p + b->taken;
	ret->len = len;
	b->taken += len + newline;
	m = times_find(&b->times, f->lo, f->hi, b->read - (b->buf.len - b->taken));
	ret->ms = m && m->exact ? m->ms : 0;
	back_split_stamp(b->stamps, ret);
}

bool logs_back_next(struct logs_back *b, struct back_line *ret)
{
	while (b->n) {
		struct back_file *f = &b->v[b->n - 1];
		size_t seen = 0, left = b->buf.len - b->taken;
		char *nl;

		do {
			left = b->buf.len - b->taken;
			nl = left > seen ? memchr(b->buf.p + b->taken + seen, '\n', left - seen) : NULL;
			seen = left;
		} while (!nl && left < PIECE_MAX && read_more(b, f));
		left = b->buf.len - b->taken;
		if (nl || left) {
			give(b, f, nl ? (size_t)(nl - (b->buf.p + b->taken)) : left, nl != NULL, ret);
			return true;
		}
		(void)close(f->fd);
		strbuf_reset(&b->buf);
		b->taken = 0;
		if (--b->n)
			b->read = b->v[b->n - 1].start;
	}
	return next_of_ring(b, ret);
}

void logs_back_close(struct logs_back *b)
{
	if (!b)
		return;
	close_files(b);
	strbuf_finish(&b->buf);
	times_finish(&b->times);
	free(b);
}
