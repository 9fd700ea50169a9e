#include "base/clock.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clk_mono_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}

int64_t clk_mono_ms(void)
{
	return read_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clk_boot_ms(void)
{
	return read_us(CLOCK_BOOTTIME) / 1000;
}

int64_t clk_wall_ms(void)
{
	return read_us(CLOCK_REALTIME) / 1000;
}

char *clk_stamp(int64_t wall_ms, char *buf, size_t cap)
{
	time_t s = (time_t)(wall_ms / 1000);
	struct tm tm;
	size_t n;

	if (cap == 0)
		return buf;
	buf[0] = 0;
	if (!gmtime_r(&s, &tm))
		return buf;
	n = strftime(buf, cap, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, cap - n, ".%03dZ", (int)(wall_ms % 1000));
	return buf;
}

/* `n` decimal digits as a number from lo to hi. */
static int digits(const char *p, size_t n, int lo, int hi, int *ret)
{
	int v = 0;

	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -1;
		v = v * 10 + (p[i] - '0');
	}
	*ret = v;
	return v >= lo && v <= hi ? 0 : -1;
}

int clk_parse_stamp(const char *text, size_t len, int64_t *ret)
{
	static const char form[] = "YYYY-MM-DDTHH:MM:SS.mmmZ", marks[] = "-T:.Z";
	const size_t whole = sizeof form - 1, seconds = sizeof "YYYY-MM-DDTHH:MM:SS" - 1;
	struct tm tm = {0};
	int ms = 0, year;

	if ((len != whole && len != seconds + 1) || text[len - 1] != 'Z')
		return -1;
	for (size_t i = 0; i < (len == whole ? whole : seconds); i++)
		if (strchr(marks, form[i]) && text[i] != form[i])
			return -1;
	if (digits(text, 4, 1970, 9999, &year) || digits(text + 5, 2, 1, 12, &tm.tm_mon) ||
	    digits(text + 8, 2, 1, 31, &tm.tm_mday) || digits(text + 11, 2, 0, 23, &tm.tm_hour) ||
	    digits(text + 14, 2, 0, 59, &tm.tm_min) || digits(text + 17, 2, 0, 60, &tm.tm_sec) ||
	    (len == whole && digits(text + 20, 3, 0, 999, &ms)))
		return -1;
	tm.tm_year = year - 1900;
	tm.tm_mon--;
	*ret = (int64_t)timegm(&tm) * 1000 + ms;
	return 0;
}
