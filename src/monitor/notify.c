#include "monitor/notify.h"
#include "base/parse.h"
#include "base/str.h"
#include <string.h>

static void take_status(struct notify_message *m, const char *value, size_t len)
{
	m->has_status = true;
	free(m->status);
	m->status = NULL;
	if (len)
		m->status = str_escape(value, len < NOTIFY_STATUS_MAX ? len : NOTIFY_STATUS_MAX);
}

static void take_extension(struct notify_message *m, const char *value, size_t len)
{
	char digits[24];
	uint64_t us;

	if (len >= sizeof digits)
		return;
	memcpy(digits, value, len);
	digits[len] = 0;
	if (parse_u64(digits, UINT64_MAX, &us) < 0)
		return;
	m->extend_ms = us / 1000 > NOTIFY_EXTEND_MAX_MS ? NOTIFY_EXTEND_MAX_MS : (int64_t)(us / 1000);
}

static bool is(const char *name, size_t n, const char *word)
{
	return n == strlen(word) && memcmp(name, word, n) == 0;
}

static void take(struct notify_message *m, const char *name, size_t n, const char *value, size_t len)
{
	bool one = is(value, len, "1");

	if (is(name, n, "READY"))
		m->ready |= one;
	else if (is(name, n, "RELOADING"))
		m->reloading |= one;
	else if (is(name, n, "STOPPING"))
		m->stopping |= one;
	else if (is(name, n, "WATCHDOG") && one)
		m->watchdog = true;
	else if (is(name, n, "WATCHDOG") && is(value, len, "trigger"))
		m->watchdog_trigger = true;
	else if (is(name, n, "MAINPID"))
		m->main_pid = true;
	else if (is(name, n, "STATUS"))
		take_status(m, value, len);
	else if (is(name, n, "EXTEND_TIMEOUT_USEC"))
		take_extension(m, value, len);
}

bool notify_parse(const char *text, size_t len, struct notify_message *ret)
{
	struct notify_message m = {0};
	bool any = false;

	if (len && text[len - 1] == 0) /* some senders count the end of their string */
		len--;
	if (memchr(text, 0, len))
		return false;
	for (size_t at = 0; at < len;) {
		const char *line = text + at, *eq;
		const char *end = memchr(line, '\n', len - at);
		size_t n = end ? (size_t)(end - line) : len - at;

		at += n + 1;
		eq = memchr(line, '=', n);
		if (!eq || eq == line)
			continue;
		any = true;
		take(&m, line, (size_t)(eq - line), eq + 1, n - (size_t)(eq + 1 - line));
	}
	if (!any)
		return false;
	*ret = m;
	return true;
}

void notify_message_finish(struct notify_message *m)
{
	free(m->status);
	*m = (struct notify_message){0};
}
