#include "cli/table.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LAST_MIN 20 /* a last column narrower than this is not worth cutting for */

void table_add(struct table *t, const char *text)
{
	strv_take(&t->cells, text && *text ? str_escape(text, strlen(text)) : xstrdup("-"));
}

void table_addf(struct table *t, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	table_add(t, text);
}

/* Code points, near enough to columns for what stands in these tables. */
static size_t width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

/* Columns of the terminal; 0: no terminal, nothing is cut. */
static size_t terminal_width(void)
{
	struct winsize ws;

	return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 ? ws.ws_col : 0;
}

size_t table_terminal_width(size_t otherwise)
{
	size_t n = terminal_width();

	return n ? n : otherwise;
}

/* The last cell ends at the edge of the terminal, with "..." where it had more to say. */
static void print_last(const char *cell, size_t at, size_t edge, size_t least)
{
	size_t room = edge > at ? edge - at : 0, n = 0;
	const char *end = cell;

	if (!edge || width(cell) <= room || room < least) {
		printf("%s\n", cell);
		return;
	}
	while (*end && n + (room > 3 ? 3 : 0) < room) {
		end++;
		while (((unsigned char)*end & 0xc0) == 0x80)
			end++;
		n++;
	}
	printf("%.*s%s\n", (int)(end - cell), cell, room > 3 ? "..." : "");
}

void table_print(struct table *t)
{
	CLEANUP_FREE size_t *widths = xcalloc(t->columns, sizeof *widths);
	size_t edge = t->edge ? t->edge : terminal_width(), at = 0;

	for (size_t i = 0; i < t->cells.n; i++)
		if (width(t->cells.v[i]) > widths[i % t->columns])
			widths[i % t->columns] = width(t->cells.v[i]);
	for (size_t i = 0; i + 1 < t->columns; i++)
		at += widths[i] + 2;
	for (size_t i = 0; i < t->cells.n; i++) {
		const char *cell = t->cells.v[i];
		size_t column = i % t->columns;

		if (column + 1 == t->columns)
			print_last(cell, at, edge, t->edge ? 0 : LAST_MIN);
		else
			printf("%s%*s", cell, (int)(widths[column] - width(cell) + 2), "");
	}
	strv_clear(&t->cells);
}

char *format_duration(int64_t ms)
{
	int64_t s = ms / 1000;

	if (ms < 1000)
		return xasprintf("%" PRId64 "ms", ms);
	if (s < 60)
		return xasprintf("%" PRId64 "s", s);
	if (s < 3600)
		return xasprintf("%" PRId64 "m %" PRId64 "s", s / 60, s % 60);
	if (s < 86400)
		return xasprintf("%" PRId64 "h %" PRId64 "m", s / 3600, s / 60 % 60);
	return xasprintf("%" PRId64 "d %" PRId64 "h", s / 86400, s / 3600 % 24);
}

char *format_bytes(uint64_t bytes)
{
	static const char units[] = "KMGT";
	double v = (double)bytes;
	int u = -1;

	while (v >= 1024. && u < 3) {
		v /= 1024.;
		u++;
	}
	return u < 0 ? xasprintf("%" PRIu64, bytes) : xasprintf("%.1f%c", v, units[u]);
}
