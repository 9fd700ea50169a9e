/*
 * The control API's client. libcurl speaks HTTP over the Unix socket; nothing of the environment (proxy
 * variables, .netrc, .curlrc) has a say. Requests that wait for an app have no time limit of their own: the
 * supervisor answers when the app is there, and Ctrl-C ends the wait. All others must be answered within
 * ANSWER_MS.
 */
#include "ctl/client.h"
#include "base/clock.h"
#include "base/str.h"
#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ANSWER_MS       15000L
#define REPLY_MAX       ((size_t)1 << 20) /* what js_parse() takes */
#define STREAM_LINE_MAX ((size_t)1 << 20)

struct ctl_client {
	CURL *curl;
	char *path;
	char error[CURL_ERROR_SIZE];
	struct js *version;
};

struct sink {
	struct strbuf buf;
	bool too_large;
	/* streams */
	int (*line)(void *data, const char *text, size_t len);
	void *data;
	struct ctl_client *client;
	bool stopped;
};

void ctl_client_close(struct ctl_client *c)
{
	if (!c)
		return;
	if (c->curl)
		curl_easy_cleanup(c->curl);
	js_free(c->version);
	free(c->path);
	free(c);
}

static size_t collect(char *data, size_t size, size_t n, void *user)
{
	struct sink *s = user;

	if (s->buf.len + size * n > REPLY_MAX) {
		s->too_large = true;
		return 0;
	}
	strbuf_add(&s->buf, data, size * n);
	return size * n;
}

static long status_of(struct ctl_client *c)
{
	long status = 0;

	(void)curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

/* Whole lines of a stream go to the caller; the body of an error is collected like any other reply. */
static size_t split(char *data, size_t size, size_t n, void *user)
{
	struct sink *s = user;
	size_t len = size * n;
	char *from, *nl;

	if (status_of(s->client) != 200)
		return collect(data, size, n, user);
	if (s->buf.len + len > STREAM_LINE_MAX) {
		s->too_large = true;
		return 0;
	}
	strbuf_add(&s->buf, data, len);
	from = s->buf.p;
	while ((nl = memchr(from, '\n', (size_t)(s->buf.p + s->buf.len - from)))) {
		if (s->line(s->data, from, (size_t)(nl - from))) {
			s->stopped = true;
			return 0;
		}
		from = nl + 1;
	}
	s->buf.len -= (size_t)(from - s->buf.p);
	memmove(s->buf.p, from, s->buf.len);
	return len;
}

/* Why a connection cannot be made: libcurl says "could not connect" also of one that was made and closed at
 * once. */
static int connect_error(const char *path)
{
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	memcpy(sa.sun_path, path, strlen(path) + 1); /* its length was checked when the client was opened */
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa))
		return errno;
	return 0;
}

static int failed(struct ctl_client *c, CURLcode code, struct err **e)
{
	int os = code == CURLE_COULDNT_CONNECT ? connect_error(c->path) : 0;

	if (code == CURLE_COULDNT_CONNECT && !os)
		code = CURLE_GOT_NOTHING;
	switch (code) {
	case CURLE_COULDNT_CONNECT:
		if (os == ENOENT || os == ECONNREFUSED)
			return err_set(e, os, "no supervisor answers on %s; start it with: sbxsv up",
				       c->path);
		return err_sys(e, os, "%s", c->path);
	case CURLE_OPERATION_TIMEDOUT:
		return err_set(e, ETIMEDOUT,
			       "the supervisor does not answer on %s (it may be stopped or very busy)",
			       c->path);
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return err_set(e, EPERM,
			       "the supervisor closed the connection on %s: it ended, or it refuses this "
			       "process (it takes "
			       "commands from its own user only, and none from inside a jail or a container)",
			       c->path);
	default:
		return err_set(e, EIO, "%s: %s", c->path, c->error[0] ? c->error : curl_easy_strerror(code));
	}
}

/* "{"error":..}" of the server as an error; its code in err_code is not an errno, callers look at the status.
 */
static struct js *parse_reply(struct ctl_client *c, const struct strbuf *b, struct err **e)
{
	struct js *j = js_parse(b->p ? b->p : "", b->len, e);

	if (!j)
		(void)err_wrap(e, "the reply on %s", c->path);
	return j;
}

static CURLcode set_up(struct ctl_client *c, const char *path, struct sink *s,
		       size_t (*sink)(char *, size_t, size_t, void *), long timeout_ms)
{
	CLEANUP_FREE char *url = xasprintf("http://sbxsv%s", path);
	CURL *h = c->curl;

	curl_easy_reset(h);
	c->error[0] = 0;
	(void)curl_easy_setopt(h, CURLOPT_ERRORBUFFER, c->error);
	(void)curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(h, CURLOPT_PROXY, ""); /* overrides http_proxy and friends */
	(void)curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	(void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, ANSWER_MS);
	(void)curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, timeout_ms);
	(void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, sink);
	(void)curl_easy_setopt(h, CURLOPT_WRITEDATA, s);
	if (curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->path) != CURLE_OK)
		return CURLE_OUT_OF_MEMORY;
	return curl_easy_setopt(h, CURLOPT_URL, url);
}

static bool waits(const struct js *body)
{
	return js_bool_or(body, "wait", false);
}

/* Closed without a word. A supervisor that refuses us does that each time. One that was ending (or a child it
 * had just made, which has its listening socket until it executes) does it once: asked again nobody answers, or
 * the next supervisor does. */
static bool left_unanswered(CURLcode code, const struct sink *s)
{
	return !s->buf.len && (code == CURLE_COULDNT_CONNECT || code == CURLE_GOT_NOTHING ||
			       code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR);
}

struct js *ctl_client_call(struct ctl_client *c, const char *method, const char *path, const struct js *body,
			   long *ret_status, struct err **e)
{
	CLEANUP_FREE char *text = body ? js_print(body) : xstrdup("");
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	struct sink s = {.client = c};
	struct js *reply = NULL;
	CURLcode code = set_up(c, path, &s, collect, waits(body) ? 0L : ANSWER_MS);

	if (code == CURLE_OK && strcmp(method, "POST") == 0) {
		/* On a connection that was used before libcurl sends it again when that is closed without an answer. */
		(void)curl_easy_setopt(c->curl, CURLOPT_FRESH_CONNECT, 1L);
		/* no "Expect: 100-continue": one round trip */
		struct curl_slist *more = curl_slist_append(headers, "Expect:");

		headers = more ? more : headers;
		(void)curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
		(void)curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, (long)strlen(text));
		(void)curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, text);
	}
	if (code == CURLE_OK)
		code = curl_easy_perform(c->curl);
	if (left_unanswered(code, &s) && strcmp(method, "GET") == 0)
		code = curl_easy_perform(c->curl);
	if (s.too_large)
		(void)err_set(e, EFBIG, "the reply on %s is larger than 1 MiB", c->path);
	else if (code != CURLE_OK)
		(void)failed(c, code, e);
	else
		reply = parse_reply(c, &s.buf, e);
	if (reply)
		*ret_status = status_of(c);
	strbuf_finish(&s.buf);
	curl_slist_free_all(headers);
	return reply;
}

int ctl_client_stream(struct ctl_client *c, const char *path,
		      int (*line)(void *data, const char *text, size_t len), void *data, long *ret_status,
		      struct err **e)
{
	struct sink s = {.client = c, .line = line, .data = data};
	CLEANUP_JS struct js *reply = NULL;
	CURLcode code = set_up(c, path, &s, split, 0L);
	int r = 0;

	if (code == CURLE_OK)
		code = curl_easy_perform(c->curl);
	if (s.too_large)
		r = err_set(e, EFBIG, "a line of more than 1 MiB on %s", c->path);
	else if (s.stopped)
		*ret_status = 200;
	else if (code == CURLE_PARTIAL_FILE || (code == CURLE_RECV_ERROR && status_of(c) == 200))
		r = err_set(
			e, EPIPE,
			"the supervisor ended, or cut this connection because it was not read fast enough");
	else if (code != CURLE_OK)
		r = failed(c, code, e);
	else if (status_of(c) == 200)
		*ret_status = 200;
	else if (!(reply = parse_reply(c, &s.buf, e)))
		r = -1;
	else {
		const char *text = js_str(reply, "error");

		*ret_status = status_of(c);
		r = err_set(e, 0, "%s", text ? text : "the supervisor refused the request");
	}
	strbuf_finish(&s.buf);
	return r;
}

const struct js *ctl_client_version(const struct ctl_client *c)
{
	return c->version;
}

struct ctl_client *ctl_client_open(const struct unit_dirs *d, struct err **e)
{
	struct ctl_client *c = xcalloc(1, sizeof *c);
	struct sockaddr_un sa;
	long status = 0;

	c->path = xasprintf("%s/control.sock", d->runtime);
	if (strlen(c->path) >= sizeof sa.sun_path)
		(void)err_set(e, ENAMETOOLONG,
			      "the path %s is too long for a Unix socket (%zu bytes at most); choose a "
			      "shorter directory with "
			      "--runtime or SBXSV_RUNTIME_DIR",
			      c->path, sizeof sa.sun_path - 1);
	else if (!(c->curl = curl_easy_init()))
		(void)err_set(e, ENOMEM, "libcurl does not start");
	else
		c->version = ctl_client_call(c, "GET", "/v1/version", NULL, &status, e);
	if (!c->version)
		goto fail;
	if (status != 200 || js_int_or(c->version, "protocol", 0) != CTL_PROTOCOL) {
		const char *text = js_str(c->version, "error"), *version = js_str(c->version, "version");

		if (text)
			(void)err_set(e, EPROTO, "the supervisor answers: %s", text);
		else
			(void)err_set(e, EPROTO,
				      "the supervisor that runs is version %s and speaks another protocol "
				      "than this sbxsv; "
				      "restart it: sbxsv down, sbxsv up",
				      version ? version : "unknown");
		goto fail;
	}
	return c;
fail:
	ctl_client_close(c);
	return NULL;
}
