#include "base/log.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

static const char *log_program = "sbxsv";
static enum log_level log_max = LOG_LEVEL_INFO;
static bool log_stamp;

void log_init(const char *program, enum log_level max)
{
	log_program = program;
	log_max = max;
}

void log_timestamps(bool on)
{
	log_stamp = on;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
	CLEANUP_FREE char *text = NULL, *safe = NULL, *line = NULL;
	char stamp[CLK_STAMP_LEN + 1] = "";
	int saved = errno;
	va_list ap;

	if (level > log_max)
		return;
	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	safe = str_escape(text, strlen(text));
	if (log_stamp)
		(void)clk_stamp(clk_wall_ms(), stamp, sizeof stamp);
	line = xasprintf("%s%s%s: %s%s\n", stamp, log_stamp ? " " : "", log_program, names[level], safe);
	(void)fd_write_all(2, line, strlen(line));
	errno = saved;
}
