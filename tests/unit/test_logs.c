/* logs and base/linefile: real files, real pipes, a full disk. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/linefile.h"
#include "logs/logs.h"
#include "logs/ring.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <cmocka.h>

struct world {
	char top[64], dir[80];
	struct loop *loop;
	struct logs_config config;
	struct logs *logs;
	struct strv seen, trouble;
};

static int rm_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static void on_line(void *data, const char *line, size_t len)
{
	struct world *w = data;

	strv_take(&w->seen, xstrndup(line, len));
}

static void on_trouble(void *data, const char *what)
{
	struct world *w = data;

	strv_add(&w->trouble, what);
}

static void open_logs(struct world *w)
{
	w->logs = logs_create(w->loop, &w->config, NULL);
	logs_set_trouble(w->logs, on_trouble, w);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void)snprintf(w->top, sizeof w->top, "/tmp/sbxsv-logs-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	(void)snprintf(w->dir, sizeof w->dir, "%s/logs", w->top);
	w->loop = loop_create(0);
	w->config = (struct logs_config){.dir = w->dir, .file = "a.log", .max_size = 1 << 20, .max_files = 5};
	open_logs(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	logs_destroy(w->logs);
	loop_destroy(w->loop);
	strv_clear(&w->seen);
	strv_clear(&w->trouble);
	assert_int_equal(nftw(w->top, rm_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	free(w);
	return 0;
}

static char *slurp(struct world *w, const char *name, size_t *ret_len)
{
	CLEANUP_FREE char *path = xasprintf("%s/%s", w->dir, name);
	size_t len = 0;
	char *text = NULL;

	if (file_read(AT_FDCWD, path, 64 << 20, &text, &len, NULL) < 0)
		return xstrdup("(no such file)");
	if (ret_len)
		*ret_len = len;
	return text;
}

static void assert_file(struct world *w, const char *name, const char *want)
{
	CLEANUP_FREE char *got = slurp(w, name, NULL);

	assert_string_equal(got, want);
}

static void feed(struct world *w, int fd, const char *text)
{
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	logs_drain(w->logs);
}

static void test_whole_lines(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_STRV struct strv tail = {0};
	struct stat st;

	feed(w, fd, "one\ntw");
	assert_file(w, "a.log", "one\n");
	feed(w, fd, "o\n\nhalf");
	assert_file(w, "a.log", "one\ntwo\n\n");
	logs_note(w->logs, "stopped");
	(void)close(TAKE_FD(fd));
	logs_drain(w->logs); /* EOF ends the half line */
	assert_file(w, "a.log", "one\ntwo\n\n[sbxsv] stopped\nhalf\n");
	logs_tail(w->logs, 3, &tail);
	assert_int_equal(tail.n, 3);
	assert_string_equal(tail.v[0], "");
	assert_string_equal(tail.v[2], "half");
	assert_int_equal(lstat(logs_path(w->logs), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(lstat(w->dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_binary_bytes_stay(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *got = NULL;
	CLEANUP_STRV struct strv tail = {0};
	char bytes[257];
	size_t len = 0;

	for (unsigned i = 0, n = 0; i < 256; i++)
		if (i != '\n')
			bytes[n++] = (char)i;
	bytes[255] = '\n';
	assert_int_equal(fd_write_all(fd, bytes, 256), 0);
	logs_drain(w->logs);
	got = slurp(w, "a.log", &len);
	assert_int_equal(len, 256);
	assert_memory_equal(got, bytes, 256);
	logs_tail(w->logs, 1, &tail);
	assert_memory_equal(tail.v[0], "\\x00\x01", 5);
	assert_int_equal(strlen(tail.v[0]), 254 + 4);
}

static void test_long_line_is_split_and_marked(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *big = xmalloc(LOGS_LINE_MAX + 101);
	CLEANUP_FREE char *got = NULL;
	size_t len = 0, mark = strlen(LOGS_SPLIT);
	struct logs_stats st;

	memset(big, 'x', LOGS_LINE_MAX + 100);
	big[LOGS_LINE_MAX] = 0; /* exactly the limit is one line */
	for (size_t at = 0; at < LOGS_LINE_MAX; at += 4096) {
		assert_int_equal(fd_write_all(fd, big + at, 4096), 0);
		logs_drain(w->logs);
	}
	feed(w, fd, "\n");
	got = slurp(w, "a.log", &len);
	assert_int_equal(len, LOGS_LINE_MAX + 1);
	for (size_t at = 0; at < LOGS_LINE_MAX; at += 4096) {
		assert_int_equal(fd_write_all(fd, big + at, 4096), 0);
		logs_drain(w->logs);
	}
	feed(w, fd, "tail\n");
	free(got);
	got = slurp(w, "a.log", &len);
	assert_int_equal(len, 2 * (LOGS_LINE_MAX + 1) + mark + 5);
	assert_memory_equal(got + 2 * LOGS_LINE_MAX + 1, LOGS_SPLIT "\ntail\n", mark + 6);
	logs_stats(w->logs, &st);
	assert_int_equal(st.lines, 3);
	assert_int_equal(st.dropped_lines, 0);
}

static void test_rotation_keeps_whole_lines_and_a_bounded_number(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = -1;
	CLEANUP_STRBUF struct strbuf all = STRBUF_INIT;
	CLEANUP_STRBUF struct strbuf back = STRBUF_INIT;
	struct stat st;

	w->config.max_size = 1000;
	w->config.max_files = 3;
	logs_configure(w->logs, &w->config);
	fd = logs_open_pipe(w->logs, NULL);
	for (unsigned i = 0; i < 400; i++)
		strbuf_addf(&all, "line %u\n", i);
	feed(w, fd, all.p);
	for (unsigned i = 3; i-- > 0;) {
		CLEANUP_FREE char *name = i ? xasprintf("a.log.%u", i) : xstrdup("a.log");
		CLEANUP_FREE char *path = xasprintf("%s/%s", w->dir, name);
		CLEANUP_FREE char *text = slurp(w, name, NULL);

		assert_int_equal(lstat(path, &st), 0);
		assert_true(st.st_size <= 1000);
		strbuf_adds(&back, text);
	}
	/* the three files together are the end of what was written, nothing twice, nothing torn */
	assert_true(back.len > 2000 && back.len < all.len);
	assert_memory_equal(back.p, "line ", 5);
	assert_string_equal(back.p, all.p + all.len - back.len);
	{
		CLEANUP_FREE char *path = xasprintf("%s/a.log.3", w->dir);

		assert_int_equal(lstat(path, &st), -1);
	}
}

static void test_one_file_and_a_line_larger_than_it(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = -1;

	w->config.max_size = 8;
	w->config.max_files = 1;
	logs_configure(w->logs, &w->config);
	fd = logs_open_pipe(w->logs, NULL);
	feed(w, fd, "short\nthis one is too long\n");
	assert_file(w, "a.log", "this one is too long\n");
	feed(w, fd, "end\n");
	assert_file(w, "a.log", "end\n");
	assert_file(w, "a.log.1", "(no such file)");
}

static void test_removed_file_and_directory_come_back(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *old = xasprintf("%s/a.log.away", w->dir);
	struct logs_stats st;

	feed(w, fd, "one\n");
	assert_int_equal(unlink(logs_path(w->logs)), 0);
	feed(w, fd, "two\n");
	assert_file(w, "a.log", "two\n");
	assert_int_equal(rename(logs_path(w->logs), old), 0); /* logrotate */
	feed(w, fd, "three\n");
	assert_file(w, "a.log", "three\n");
	assert_int_equal(nftw(w->dir, rm_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	feed(w, fd, "four\n");
	assert_file(w, "a.log", "four\n");
	assert_int_equal(truncate(logs_path(w->logs), 0), 0);
	feed(w, fd, "five\n");
	assert_file(w, "a.log", "five\n");
	logs_stats(w->logs, &st);
	assert_int_equal(st.dropped_lines, 0);
	assert_int_equal(w->trouble.n, 0);
}

static void test_unusable_directory_is_counted_and_mended(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_STRV struct strv tail = {0};
	CLEANUP_FREE char *text = NULL;
	struct logs_stats st;
	int file =
		open(w->dir, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* a file where the directory should be */

	assert_true(file >= 0);
	(void)close(file);
	feed(w, fd, "lost 1\nlost 2\n");
	feed(w, fd, "lost 3\n");
	logs_stats(w->logs, &st);
	assert_int_equal(st.dropped_lines, 3);
	assert_int_equal(st.dropped_bytes, 21);
	assert_true(st.losing);
	assert_non_null(strstr(st.last_error, w->dir));
	assert_int_equal(w->trouble.n, 1); /* once a streak */
	logs_tail(w->logs, 5, &tail);      /* memory still has them */
	assert_int_equal(tail.n, 3);
	assert_int_equal(unlink(w->dir), 0);
	feed(w, fd, "kept\n");
	text = slurp(w, "a.log", NULL);
	assert_true(str_starts(text, "[sbxsv] 3 lines (21 bytes) are missing here: "));
	assert_true(str_ends(text, "\nkept\n"));
	assert_int_equal(w->trouble.n, 2);
	logs_stats(w->logs, &st);
	assert_false(st.losing);
	assert_int_equal(st.dropped_lines, 3);
}

static void break_loop(struct loop_timer *t)
{
	loop_break(t->loop);
}

static void test_the_mark_is_written_without_new_output(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *text = NULL;
	int file = open(w->dir, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct loop_timer t;

	(void)close(file);
	feed(w, fd, "lost\n");
	assert_int_equal(unlink(w->dir), 0);
	loop_timer_init(w->loop, &t, break_loop, NULL);
	loop_timer_start(&t, 3000);
	loop_run(w->loop);
	text = slurp(w, "a.log", NULL);
	assert_true(str_starts(text, "[sbxsv] 1 lines (5 bytes) are missing here: "));
}

static void test_symlink_and_fifo_are_refused(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *victim = xasprintf("%s/victim", w->top);
	struct logs_stats st;
	struct stat s;

	assert_int_equal(mkdir(w->dir, 0700), 0);
	assert_int_equal(symlink(victim, logs_path(w->logs)), 0);
	feed(w, fd, "x\n");
	assert_int_equal(lstat(victim, &s), -1);
	assert_int_equal(unlink(logs_path(w->logs)), 0);
	assert_int_equal(mkfifo(logs_path(w->logs), 0600), 0);
	feed(w, fd, "y\n"); /* must not hang */
	logs_stats(w->logs, &st);
	assert_int_equal(st.dropped_lines, 2);
}

static void test_no_fds_left(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_ERR struct err *e = NULL;
	struct rlimit was, none;
	struct logs_stats st;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(fd_write_all(fd, "lost\n", 5), 0);
	logs_drain(w->logs);
	assert_int_equal(logs_open_pipe(w->logs, &e), -1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(err_code(e), EMFILE);
	logs_stats(w->logs, &st);
	assert_int_equal(st.dropped_lines, 1);
	assert_non_null(strstr(st.last_error, strerror(EMFILE)));
	feed(w, fd, "kept\n");
	logs_stats(w->logs, &st);
	assert_int_equal(st.dropped_lines, 1);
}

static void test_ring_is_bounded(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_STRV struct strv tail = {0};
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	for (unsigned i = 0; i < 1000; i++)
		strbuf_addf(&b, "%u\n", i);
	feed(w, fd, b.p);
	logs_tail(w->logs, 100000, &tail);
	assert_int_equal(tail.n, RING_LINES);
	assert_string_equal(tail.v[0], "800");
	assert_string_equal(tail.v[199], "999");
	strv_clear(&tail);
	strbuf_reset(&b);
	for (unsigned i = 0; i < 60000; i++)
		strbuf_addc(&b, 'z');
	strbuf_addc(&b, '\n');
	for (unsigned i = 0; i < 8; i++)
		feed(w, fd, b.p);
	logs_tail(w->logs, 100, &tail);
	assert_int_equal(tail.n, RING_BYTES / 60000);
}

struct self_stopper {
	struct logs_follow *me, *other;
	unsigned calls;
};

static void stop_both(void *data, const char *line, size_t len)
{
	struct self_stopper *s = data;

	(void)line;
	(void)len;
	s->calls++;
	logs_follow_stop(s->me);
	logs_follow_stop(s->other);
}

static void test_followers_may_stop_inside_their_callback(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	struct self_stopper s = {0};
	struct logs_follow *last;

	s.me = logs_follow_start(w->logs, stop_both, &s);
	s.other = logs_follow_start(w->logs, on_line, w);
	last = logs_follow_start(w->logs, on_line, w);
	feed(w, fd, "a\nb\n");
	assert_int_equal(s.calls, 1);
	assert_int_equal(w->seen.n, 2); /* by `last` alone */
	assert_string_equal(w->seen.v[1], "b");
	logs_follow_stop(last);
	feed(w, fd, "c\n");
	assert_int_equal(w->seen.n, 2);
}

static void test_earlier_run_is_seen_in_the_tail(void **state)
{
	struct world *w = *state;
	int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_STRV struct strv tail = {0};
	CLEANUP_FREE char *got = NULL;

	feed(w, fd, "old 1\nold 2\n");
	(void)close(fd);
	logs_destroy(w->logs);
	fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	{ /* a crash in the middle of a write */
		int torn = openat(fd, "a.log", O_WRONLY | O_APPEND | O_CLOEXEC);

		assert_int_equal(write(torn, "torn", 4), 4);
		(void)close(torn);
	}
	(void)close(fd);
	w->config.max_size = 24; /* rotates under the way */
	open_logs(w);
	fd = logs_open_pipe(w->logs, NULL);
	feed(w, fd, "new 1\nnew 2\n");
	got = slurp(w, "a.log.1", NULL);
	assert_string_equal(got, "old 1\nold 2\ntorn\nnew 1\n");
	logs_tail(w->logs, 3, &tail);
	assert_int_equal(tail.n, 3);
	assert_string_equal(tail.v[0], "old 2");
	assert_string_equal(tail.v[1], "new 1");
	assert_string_equal(tail.v[2], "new 2");
	(void)close(fd);
}

static void test_timestamps(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = -1;
	CLEANUP_FREE char *got = NULL;

	w->config.timestamps = true;
	logs_configure(w->logs, &w->config);
	fd = logs_open_pipe(w->logs, NULL);
	feed(w, fd, "hello\n");
	got = slurp(w, "a.log", NULL);
	assert_int_equal(strlen(got), 24 + 1 + 6);
	assert_int_equal(got[10], 'T');
	assert_int_equal(got[23], 'Z');
	assert_string_equal(got + 24, " hello\n");
}

static void stop_at_eof(struct loop_io *io, unsigned events)
{
	char c;

	(void)events;
	if (read(io->fd, &c, 1) == 0)
		loop_break(io->loop);
}

/* 16 MB from a child through the loop: nothing lost, and the writer is never held up for good. */
static void test_a_flood_through_the_loop(void **state)
{
	struct world *w = *state;
	int fd = logs_open_pipe(w->logs, NULL), done[2];
	struct loop_io io;
	struct logs_stats st;
	pid_t pid;

	w->config.max_size = 4 << 20;
	logs_configure(w->logs, &w->config);
	assert_int_equal(pipe2(done, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		char line[100];

		memset(line, 'f', 99);
		line[99] = '\n';
		for (unsigned i = 0; i < 160000; i++)
			if (fd_write_all(fd, line, 100) < 0)
				_exit(1);
		_exit(0);
	}
	(void)close(fd);
	(void)close(done[1]);
	loop_io_init(w->loop, &io, done[0], LOOP_READ, stop_at_eof, NULL);
	loop_run(w->loop);
	loop_io_stop(&io);
	(void)close(done[0]);
	logs_drain(w->logs);
	logs_drain(w->logs);
	logs_stats(w->logs, &st);
	assert_int_equal(st.lines, 160000);
	assert_int_equal(st.bytes, 16000000);
	assert_int_equal(st.dropped_lines, 0);
}

/* A line that waits for company is in the tail already: a follower who asked for both sees it once. */
static void test_tail_and_follow_have_each_line_once(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	struct logs_follow *f;

	feed(w, fd, "one\n");
	logs_note_soon(w->logs, "waits");
	logs_tail(w->logs, 10, &w->seen);
	f = logs_follow_start(w->logs, on_line, w);
	feed(w, fd, "two\n");
	assert_int_equal(w->seen.n, 3);
	assert_string_equal(w->seen.v[0], "one");
	assert_string_equal(w->seen.v[1], "[sbxsv] waits");
	assert_string_equal(w->seen.v[2], "two");
	logs_follow_stop(f);
}

static void assert_back(struct world *w, size_t n, int64_t since_ms, const char *want)
{
	struct logs_back *b = logs_back_start(w->logs, n, since_ms);
	CLEANUP_STRBUF struct strbuf got = STRBUF_INIT;
	struct back_line l;

	while (logs_back_next(b, &l)) {
		strbuf_add(&got, l.text, l.len);
		strbuf_addc(&got, '|');
	}
	logs_back_close(b);
	assert_string_equal(got.p ? got.p : "", want);
}

static void test_looking_back_over_rotated_files(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = -1;
	CLEANUP_STRBUF struct strbuf all = STRBUF_INIT;
	CLEANUP_STRBUF struct strbuf want = STRBUF_INIT;
	struct logs_back *b;
	struct back_line l;

	assert_back(w, 10, 0, "");
	w->config.max_size = 2000;
	w->config.max_files = 50;
	logs_configure(w->logs, &w->config);
	fd = logs_open_pipe(w->logs, NULL);
	for (unsigned i = 0; i < 3000; i++) {
		strbuf_addf(&all, "%u\n", i);
		strbuf_addf(&want, "%u|", i);
	}
	feed(w, fd, all.p);
	assert_back(w, 0, 0, "");
	assert_back(w, 1, 0, "2999|");
	assert_back(w, 3, 0, "2997|2998|2999|");
	assert_back(w, 3000, 0, want.p);
	assert_back(w, 5000, 0, want.p);
	assert_back(w, SIZE_MAX, 1, want.p);
	assert_back(w, 1000, 0, strstr(want.p, "|2000|") + 1);
	/* rotated away and more written while it is read: what was there is read, no more, no less */
	b = logs_back_start(w->logs, 1000, 0);
	assert_true(logs_back_next(b, &l));
	for (unsigned i = 0; i < 20; i++)
		feed(w, fd, all.p);
	for (unsigned i = 2001; i < 3000; i++) {
		char number[8];

		(void)snprintf(number, sizeof number, "%u", i);
		assert_true(logs_back_next(b, &l));
		assert_int_equal(l.len, strlen(number));
		assert_memory_equal(l.text, number, l.len);
	}
	assert_false(logs_back_next(b, &l));
	logs_back_close(b);
}

static void test_looking_back_at_odd_lines(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *big = xmalloc(100001), *want = NULL, *path = NULL;
	FILE *f;

	memset(big, 'b', 100000);
	big[100000] = 0;
	feed(w, fd, "\n\nx\n\n");
	assert_back(w, 3, 0, "|x||");
	assert_back(w, 9, 0, "||x||");
	/* a line of somebody else's, longer than any block and without an end */
	path = xasprintf("%s/a.log", w->dir);
	f = fopen(path, "a");
	assert_non_null(f);
	(void)fprintf(f, "%s\nhalf", big);
	assert_int_equal(fclose(f), 0);
	want = xasprintf("%s|half|", big);
	assert_back(w, 2, 0, want);
	/* the file is gone: the ring has what it has */
	assert_int_equal(unlink(path), 0);
	assert_back(w, 2, 0, "x||");
	feed(w, fd, "new\n");
	assert_back(w, 9, 0, "||x||new|");
}

static void test_since_without_stamps(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int fd = logs_open_pipe(w->logs, NULL);
	CLEANUP_FREE char *path = xasprintf("%s/a.log", w->dir);
	struct timespec old[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
	int64_t then;

	feed(w, fd, "one\ntwo\n");
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0); /* an earlier run, long ago */
	logs_destroy(w->logs);
	open_logs(w);
	(void)close(fd);
	fd = logs_open_pipe(w->logs, NULL);
	feed(w, fd, "three\n");
	then = clk_wall_ms();
	assert_back(w, 9, 1, "one|two|three|");
	assert_back(w, 9, 1000000000, "one|two|three|"); /* the time of the last write: not before T */
	assert_back(w, 9, 1000000001, "three|");
	assert_back(w, 9, then - 60000, "three|");
	assert_back(w, 9, then + 60000, "");
	usleep(1100 * 1000); /* the marks are a second apart */
	feed(w, fd, "four\n");
	assert_back(w, 9, then + 1, "four|");
	assert_back(w, 9, then - 60000, "three|four|");
}

static void test_since_with_stamps(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *path = xasprintf("%s/a.log", w->dir);
	struct logs_back *b;
	struct back_line l;
	FILE *f;

	w->config.timestamps = true;
	logs_configure(w->logs, &w->config);
	assert_true(mkdir(w->dir, 0700) == 0 || errno == EEXIST);
	f = fopen(path, "a");
	assert_non_null(f);
	fputs("2026-01-01T00:00:00.000Z a\n2026-01-01T00:00:01.500Z b\n2026-01-01T00:00:02.000Z \n", f);
	assert_int_equal(fclose(f), 0);
	assert_back(w, 9, 1, "a|b||");
	assert_back(w, 9, 1767225601500, "b||");
	assert_back(w, 9, 1767225601501, "|");
	assert_back(w, 9, 1767225602001, "");
	b = logs_back_start(w->logs, 2, 0);
	assert_true(logs_back_next(b, &l));
	assert_int_equal(l.ms, 1767225601500);
	assert_memory_equal(l.stamp, "2026-01-01T00:00:01.500Z b", 26);
	logs_back_close(b);
}

static void test_stamps_are_read_strictly(void **state)
{
	static const char *const bad[] = {"",
					  "2026-01-01T00:00:00.000",
					  "2026-13-01T00:00:00.000Z",
					  "2026-01-01 00:00:00.000Z",
					  "2026-01-01T24:00:00.000Z",
					  "2026-01-01T00:00:00,000Z",
					  "2026-01-01T00:00:0x.000Z",
					  "2026-01-01T00:00:00.000+"};
	char stamp[CLK_STAMP_LEN];
	int64_t ms = 5, now = clk_wall_ms();

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(clk_parse_stamp(bad[i], strlen(bad[i]), &ms), -1);
	assert_int_equal(ms, 5);
	(void)clk_stamp(now, stamp, sizeof stamp);
	assert_int_equal(clk_parse_stamp(stamp, strlen(stamp), &ms), 0);
	assert_int_equal(ms, now);
	assert_int_equal(clk_parse_stamp("2026-01-01T00:00:00Z", 20, &ms), 0);
	assert_int_equal(ms, 1767225600000);
}

static void test_marks_of_time_are_bounded(void **state)
{
	struct times t = {0};
	const struct time_mark *m;
	size_t lo, hi;

	(void)state;
	for (uint64_t i = 1; i <= 100000; i++)
		times_add(&t, 7, i * 10, (int64_t)i * 1000, true);
	assert_true(t.n <= TIMES_MAX);
	times_of_file(&t, 7, &lo, &hi);
	assert_int_equal(lo, 0);
	assert_int_equal(hi, t.n);
	for (uint64_t i = 1; i <= 100000; i++) { /* never too early, and the newest are exact */
		m = times_find(&t, lo, hi, i * 10);
		assert_non_null(m);
		assert_true(m->ms >= (int64_t)i * 1000);
		assert_true(m->ms - (int64_t)i * 1000 <= (100000 - (int64_t)i) * 1000 / TIMES_FINE);
	}
	assert_null(times_find(&t, lo, hi, 1000001));
	times_add(&t, 8, 10, 100001000, true);
	times_add(&t, 7, 20, 100002000, true); /* another file of that number */
	times_of_file(&t, 7, &lo, &hi);
	assert_int_equal(hi - lo, 1);
	for (uint64_t i = 1; i <= 100000; i++) /* a file each */
		times_add(&t, 100 + i, 1, (int64_t)i * 1000, true);
	assert_true(t.n <= TIMES_MAX);
	times_finish(&t);
}

static int write_to(const char *path, const char *text)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -1 : fd_write_all(fd, text, strlen(text));
}

/* In a mount namespace of its own (with a user namespace when not root): a tmpfs of 2 MB. */
static int small_disk(const char *dir)
{
	bool root = geteuid() == 0;
	CLEANUP_FREE char *uids = xasprintf("%u %u 1", geteuid(), geteuid());
	CLEANUP_FREE char *gids = xasprintf("%u %u 1", getegid(), getegid());

	if (unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)) < 0)
		return -1;
	if (!root &&
	    (write_to("/proc/self/uid_map", uids) < 0 || write_to("/proc/self/setgroups", "deny") < 0 ||
	     write_to("/proc/self/gid_map", gids) < 0))
		return -1;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mkdir(dir, 0700) < 0)
		return -1;
	return mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=700");
}

static void test_full_disk(void **state) /* last: it changes the namespaces of this process */
{
	struct world *w = *state;
	CLEANUP_FD int fd = -1;
	CLEANUP_FREE char *line = NULL, *text = NULL;
	struct logs_stats st;
	size_t len = 0;

	if (small_disk(w->dir) < 0) {
		print_message("no mount namespace here: %s\n", strerror(errno));
		skip(); /* a jump that runs no cleanup: nothing may be held here */
	}
	line = xmalloc(10001);
	w->config.max_size = 64 << 20;
	logs_configure(w->logs, &w->config);
	fd = logs_open_pipe(w->logs, NULL);
	memset(line, 'd', 9999);
	line[9999] = '\n';
	line[10000] = 0;
	for (unsigned i = 0; i < 300; i++)
		feed(w, fd, line);
	logs_stats(w->logs, &st);
	assert_true(st.losing);
	assert_non_null(strstr(st.last_error, strerror(ENOSPC)));
	assert_int_equal(w->trouble.n, 1);
	text = slurp(w, "a.log", &len);
	assert_int_equal(len % 10000, 0); /* whole lines only */
	assert_int_equal(len + st.dropped_bytes, 3000000);
	assert_int_equal(st.dropped_lines * 10000, st.dropped_bytes);
	/* room again */
	assert_int_equal(truncate(logs_path(w->logs), 10000), 0);
	feed(w, fd, "after\n");
	free(text);
	text = slurp(w, "a.log", &len);
	assert_true(str_starts(text + 10000, "[sbxsv] "));
	assert_non_null(strstr(text + 10000, "lines ("));
	assert_true(str_ends(text, "\nafter\n"));
	assert_int_equal(w->trouble.n, 2);
	{
		CLEANUP_FREE char *lost =
			xasprintf("%llu lines (%llu bytes) were lost", (unsigned long long)st.dropped_lines,
				  (unsigned long long)st.dropped_bytes);

		assert_non_null(strstr(w->trouble.v[1], lost));
	}
	assert_int_equal(umount2(w->dir, MNT_DETACH), 0);
}

/* Whoever keeps the write ends of earlier processes (an app that passed its stdout on) does not fill our table. */
static void test_pipes_are_bounded(void **state)
{
	struct world *w = *state;
	int held[200], last;

	for (size_t i = 0; i < ELEMENTS(held); i++) {
		held[i] = logs_open_pipe(w->logs, NULL);
		assert_true(held[i] >= 0);
		assert_int_equal(fcntl(held[i], F_SETFL, O_NONBLOCK), 0);
	}
	(void)signal(SIGPIPE, SIG_IGN);
	last = held[ELEMENTS(held) - 1];
	assert_int_equal(write(held[0], "newest\n", 7), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(write(last, "newest\n", 7), 7);
	logs_drain(w->logs);
	logs_tail(w->logs, 1, &w->seen);
	assert_int_equal(w->seen.n, 1);
	assert_string_equal(w->seen.v[0], "newest");
	fd_close_many(held, ELEMENTS(held));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_pipes_are_bounded),
		T(test_whole_lines),
		T(test_binary_bytes_stay),
		T(test_long_line_is_split_and_marked),
		T(test_rotation_keeps_whole_lines_and_a_bounded_number),
		T(test_one_file_and_a_line_larger_than_it),
		T(test_removed_file_and_directory_come_back),
		T(test_unusable_directory_is_counted_and_mended),
		T(test_the_mark_is_written_without_new_output),
		T(test_symlink_and_fifo_are_refused),
		T(test_no_fds_left),
		T(test_ring_is_bounded),
		T(test_followers_may_stop_inside_their_callback),
		T(test_earlier_run_is_seen_in_the_tail),
		T(test_timestamps),
		T(test_tail_and_follow_have_each_line_once),
		T(test_looking_back_over_rotated_files),
		T(test_looking_back_at_odd_lines),
		T(test_since_without_stamps),
		T(test_since_with_stamps),
		T(test_stamps_are_read_strictly),
		T(test_marks_of_time_are_bounded),
		T(test_a_flood_through_the_loop),
		T(test_full_disk),
	};

	return cmocka_run_group_tests_name("logs", tests, NULL, NULL);
}
