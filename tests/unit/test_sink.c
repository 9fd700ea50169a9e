/* logs/sink and logs with another target than a file: real datagram sockets, read by the test. */
#include "base/str.h"
#include "logs/logs.h"
#include "logs/sink.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

struct world {
	char top[64], path[96], file[96];
	int sock;
	struct loop *loop;
	struct loop_timer guard;
	struct strv trouble;
	struct sink *sink;
};

static void listen_there(struct world *w)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	memcpy(sa.sun_path, w->path, strlen(w->path) + 1);
	w->sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(w->sock >= 0);
	assert_int_equal(bind(w->sock, (struct sockaddr *)&sa, sizeof sa), 0);
}

static void go_away(struct world *w)
{
	(void)close(w->sock);
	w->sock = -1;
	assert_int_equal(unlink(w->path), 0);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void)snprintf(w->top, sizeof w->top, "/tmp/sbxsv-sink-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	(void)snprintf(w->path, sizeof w->path, "%s/socket", w->top);
	(void)snprintf(w->file, sizeof w->file, "%s/a.log", w->top);
	w->loop = loop_create(0);
	listen_there(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	sink_destroy(w->sink);
	loop_destroy(w->loop);
	if (w->sock >= 0)
		go_away(w);
	(void)unlink(w->file);
	assert_int_equal(rmdir(w->top), 0);
	strv_clear(&w->trouble);
	free(w);
	return 0;
}

static char *mark(void *data, uint64_t lines, uint64_t bytes, const char *error)
{
	(void)data;
	return xasprintf("lost %llu %llu %s\n", (unsigned long long)lines, (unsigned long long)bytes,
			 error ? "why" : "?");
}

static void on_trouble(void *data, const char *what)
{
	struct world *w = data;

	strv_add(&w->trouble, what);
}

static void open_sink(struct world *w, enum sink_kind kind)
{
	struct linefile_hooks h = {.mark = mark, .trouble = on_trouble, .data = w};

	w->sink = sink_create(w->loop, kind, "notes", w->path, &h);
}

/* The next message, NULL when there is none. One that came as a descriptor is read from it. */
static char *message(struct world *w, size_t *ret_len, bool *ret_memfd)
{
	static char buf[512 << 10];
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} c;
	struct iovec io = {.iov_base = buf, .iov_len = sizeof buf};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
	ssize_t n = recvmsg(w->sock, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *h;
	char *copy;
	int fd;

	if (n < 0)
		return NULL;
	assert_false(m.msg_flags & MSG_TRUNC);
	h = CMSG_FIRSTHDR(&m);
	*ret_memfd = h != NULL;
	if (h) {
		assert_int_equal(n, 0);
		memcpy(&fd, CMSG_DATA(h), sizeof fd);
		assert_int_equal(fcntl(fd, F_GET_SEALS),
				 F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
		n = pread(fd, buf, sizeof buf, 0);
		assert_true(n > 0 && (size_t)n < sizeof buf);
		(void)close(fd);
	}
	*ret_len = (size_t)n;
	copy = xmalloc((size_t)n + 1);
	memcpy(copy, buf, (size_t)n);
	copy[n] = 0;
	return copy;
}

static char *text_message(struct world *w)
{
	bool memfd = false;
	size_t len;
	char *m = message(w, &len, &memfd);

	assert_false(memfd);
	return m;
}

static void guard_cb(struct loop_timer *t)
{
	struct world *w = t->data;

	loop_break(w->loop);
}

static void run_for(struct world *w, int ms)
{
	loop_timer_init(w->loop, &w->guard, guard_cb, w);
	loop_timer_start(&w->guard, ms);
	loop_run(w->loop);
}

static int put(struct world *w, const char *text)
{
	return sink_write(w->sink, text, strlen(text));
}

static void test_syslog_form(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *m = NULL, *second = NULL;
	const char *head = geteuid() == 0 ? "<30>" : "<14>";

	open_sink(w, SINK_SYSLOG);
	assert_int_equal(put(w, "one \033[1m\ntwo\n"), 0);
	m = text_message(w);
	second = text_message(w);
	assert_true(str_starts(m, head));
	/* "Dec  1 08:05:32 sbxsv/notes: " */
	assert_true(strchr("JFMASOND", m[4]) && m[7] == ' ' && m[10] == ' ' && m[13] == ':' && m[19] == ' ');
	assert_string_equal(m + 20, "sbxsv/notes: one \\x1b[1m");
	assert_string_equal(second + 20, "sbxsv/notes: two");
	assert_null(text_message(w));
	assert_int_equal(w->trouble.n, 0);
}

static void test_syslog_pieces(void **state)
{
	struct world *w = *state;
	CLEANUP_STRBUF struct strbuf line = STRBUF_INIT;
	CLEANUP_STRBUF struct strbuf got = STRBUF_INIT;

	open_sink(w, SINK_SYSLOG);
	for (unsigned i = 0; i < 5000; i++)
		strbuf_adds(&line,
			    "\xe2\x82\xac"); /* 15,000 bytes: 4 pieces, less than any queue of datagrams */
	strbuf_addc(&line, '\n');
	assert_int_equal(sink_write(w->sink, line.p, line.len), 0);
	for (char *m; (m = text_message(w)); free(m)) {
		size_t len = strlen(m + 20 + strlen("sbxsv/notes: "));

		assert_true(len <= SINK_PIECE && len % 3 == 0);
		strbuf_adds(&got, m + 20 + strlen("sbxsv/notes: "));
	}
	strbuf_addc(&got, '\n');
	assert_string_equal(got.p, line.p);
}

static void test_journal_form(void **state)
{
	static const char want[] = "PRIORITY=6\nSYSLOG_IDENTIFIER=sbxsv/"
				   "notes\nSBXSV_APP=notes\nMESSAGE\n\5\0\0\0\0\0\0\0a\0\xff=b\n";
	struct world *w = *state;
	CLEANUP_FREE char *m = NULL;
	size_t len = 0;
	bool memfd = true;

	open_sink(w, SINK_JOURNAL);
	assert_int_equal(sink_write(w->sink, "a\0\xff=b\n", 6), 0);
	m = message(w, &len, &memfd);
	assert_non_null(m);
	assert_false(memfd);
	assert_int_equal(len, sizeof want - 1);
	assert_memory_equal(m, want, sizeof want - 1);
}

static void test_journal_takes_a_large_message_as_memfd(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *line = xmalloc(400001), *m = NULL;
	const char *body;
	uint64_t size;
	size_t len = 0;
	bool memfd = false;

	open_sink(w, SINK_JOURNAL);
	memset(line, 'j', 400000);
	line[400000] = '\n';
	assert_int_equal(sink_write(w->sink, line, 400001), 0);
	m = message(w, &len, &memfd);
	assert_non_null(m);
	assert_true(memfd);
	body = strstr(m, "MESSAGE\n") + strlen("MESSAGE\n");
	memcpy(&size, body, sizeof size);
	assert_int_equal(le64toh(size), 400000);
	assert_memory_equal(body + sizeof size, line, 400001);
	assert_int_equal(m + len - body, (ptrdiff_t)sizeof size + 400001);
}

struct tally {
	uint64_t got, marks, lost, lost_bytes;
};

static void read_all(struct world *w, struct tally *t)
{
	unsigned long long lines, bytes;
	bool memfd = false;
	size_t len;

	for (char *m; (m = message(w, &len, &memfd)); free(m)) {
		const char *at = memmem(m, len, "lost ", 5);

		assert_false(memfd);
		if (!at) {
			t->got++;
			continue;
		}
		assert_int_equal(sscanf(at, "lost %llu %llu", &lines, &bytes), 2);
		t->marks++;
		t->lost += lines;
		t->lost_bytes += bytes;
	}
}

/* Nobody reads: nothing blocks, and every line is taken, or counted and marked as lost. */
static void test_a_slow_reader_costs_lines_that_are_counted(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *line = xmalloc(1001);
	struct tally t = {0};

	open_sink(w, SINK_JOURNAL);
	memset(line, 's', 999);
	line[999] = '\n';
	line[1000] = 0;
	for (unsigned i = 0; i < 2000; i++)
		(void)put(w, line);
	assert_true(sink_dropped_lines(w->sink) > 0);
	assert_int_equal(sink_dropped_bytes(w->sink), sink_dropped_lines(w->sink) * 1000);
	assert_true(sink_losing(w->sink));
	assert_int_equal(w->trouble.n, 1);
	for (unsigned rounds = 0; rounds < 2000 && sink_losing(w->sink); rounds++) {
		read_all(w, &t);
		run_for(w, 2);
	}
	assert_false(sink_losing(w->sink));
	read_all(w, &t);
	assert_int_equal(w->trouble.n, 2);
	assert_int_equal(t.got + t.lost, 2000);
	assert_int_equal(t.marks, 1);
	assert_int_equal(t.lost, sink_dropped_lines(w->sink));
	assert_int_equal(t.lost_bytes, sink_dropped_bytes(w->sink));
}

static void test_nobody_listens_yet(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *m = NULL;

	go_away(w);
	open_sink(w, SINK_SYSLOG);
	assert_int_equal(put(w, "early\n"), 0);
	assert_int_equal(w->trouble.n, 1);
	assert_non_null(strstr(w->trouble.v[0], strerror(ENOENT)));
	assert_non_null(strstr(sink_error(w->sink), w->path));
	listen_there(w);
	for (unsigned i = 0; i < 100 && !m; i++) {
		run_for(w, 100);
		m = text_message(w);
	}
	assert_non_null(m);
	assert_non_null(strstr(m, "early"));
	assert_int_equal(w->trouble.n, 2);
	assert_non_null(strstr(w->trouble.v[1], "writing again, 0 lines (0 bytes) were lost"));
	assert_int_equal(sink_dropped_lines(w->sink), 0);
}

static void test_a_new_listener_is_found_at_once(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *first = NULL, *second = NULL;

	open_sink(w, SINK_SYSLOG);
	assert_int_equal(put(w, "one\n"), 0);
	first = text_message(w);
	assert_non_null(first);
	go_away(w);
	listen_there(w);
	assert_int_equal(put(w, "two\n"), 0);
	second = text_message(w);
	assert_non_null(second);
	assert_non_null(strstr(second, "two"));
	assert_int_equal(w->trouble.n, 0);
}

static void test_what_is_left_at_the_end_is_counted(void **state)
{
	struct world *w = *state;

	go_away(w);
	open_sink(w, SINK_SYSLOG);
	assert_int_equal(put(w, "one\ntwo\n"), 0);
	sink_close(w->sink);
	assert_int_equal(sink_dropped_lines(w->sink), 2);
	assert_int_equal(sink_dropped_bytes(w->sink), 8);
	assert_non_null(strstr(w->trouble.v[w->trouble.n - 1], "2 lines (8 bytes)"));
}

static void test_a_log_changes_its_target(void **state)
{
	struct world *w = *state;
	struct logs_config c = {.target = LOGS_JOURNAL,
				.app = "notes",
				.socket = w->path,
				.dir = w->top,
				.file = "a.log",
				.max_size = 1 << 20,
				.max_files = 2};
	struct logs *l = logs_create(w->loop, &c, NULL);
	CLEANUP_FREE char *m = NULL;
	struct logs_back *b;
	struct back_line line;
	struct logs_stats st;
	struct stat file;

	logs_note(l, "first");
	m = text_message(w);
	assert_non_null(m);
	assert_null(logs_path(l));
	assert_string_equal(logs_target_name(l), "journal");
	assert_int_equal(stat(w->file, &file), -1);
	b = logs_back_start(l, 5, 0); /* from memory */
	assert_true(logs_back_next(b, &line));
	assert_memory_equal(line.text, "[sbxsv] first", line.len);
	assert_false(logs_back_next(b, &line));
	logs_back_close(b);
	go_away(w);
	logs_note(l, "lost");
	c.target = LOGS_FILE;
	logs_configure(l, &c);
	logs_note(l, "second");
	assert_string_equal(logs_path(l), w->file);
	assert_int_equal(stat(w->file, &file), 0);
	assert_int_equal(file.st_size, strlen("[sbxsv] second\n"));
	logs_stats(l, &st);
	assert_int_equal(st.lines, 3);
	assert_int_equal(st.dropped_lines, 1);
	assert_int_equal(st.dropped_bytes, strlen("[sbxsv] lost\n"));
	logs_destroy(l);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_syslog_form),
		T(test_syslog_pieces),
		T(test_journal_form),
		T(test_journal_takes_a_large_message_as_memfd),
		T(test_a_slow_reader_costs_lines_that_are_counted),
		T(test_nobody_listens_yet),
		T(test_a_new_listener_is_found_at_once),
		T(test_what_is_left_at_the_end_is_counted),
		T(test_a_log_changes_its_target),
	};

	return cmocka_run_group_tests_name("sink", tests, NULL, NULL);
}
