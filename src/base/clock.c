#include "base/clock.h"
#include <stdio.h>
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
