#include "base/parse.h"
#include "base/cleanup.h"
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int parse_u64(const char *s, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*s)
		return -1;
	for (; *s; s++) {
		unsigned d = (unsigned)(*s - '0');

		if (d > 9 || v > (max - d) / 10 || d > max)
			return -1;
		v = v * 10 + d;
	}
	*ret = v;
	return 0;
}

int parse_bool(const char *s, bool *ret)
{
	static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false", "off",
										    "0"};

	for (size_t i = 0; i < ELEMENTS(yes); i++) {
		if (strcasecmp(s, yes[i]) == 0)
			return *ret = true, 0;
		if (strcasecmp(s, no[i]) == 0)
			return *ret = false, 0;
	}
	return -1;
}

static int64_t duration_unit_us(const char *s, size_t n)
{
	static const struct {
		const char *name;
		int64_t us;
	} units[] = {
		{"", 1000000},        {"us", 1},          {"ms", 1000},         {"s", 1000000},
		{"sec", 1000000},     {"m", 60000000},    {"min", 60000000},    {"h", 3600000000},
		{"hour", 3600000000}, {"d", 86400000000}, {"day", 86400000000},
	};

	for (size_t i = 0; i < ELEMENTS(units); i++)
		if (strlen(units[i].name) == n && memcmp(units[i].name, s, n) == 0)
			return units[i].us;
	return -1;
}

int parse_duration_ms(const char *s, int64_t *ret)
{
	const int64_t max_us = INT64_C(10) * 366 * 86400 * 1000000;
	int64_t total = 0;

	if (!*s)
		return -1;
	while (*s) {
		int64_t whole = 0, frac = 0, scale = 1, unit;
		const char *u;

		if (!isdigit((unsigned char)*s))
			return -1;
		for (; isdigit((unsigned char)*s); s++)
			if ((whole = whole * 10 + (*s - '0')) > INT64_C(1000000000000))
				return -1;
		if (*s == '.') {
			if (!isdigit((unsigned char)*++s))
				return -1;
			for (; isdigit((unsigned char)*s); s++)
				if (scale < 1000000)
					frac = frac * 10 + (*s - '0'), scale *= 10;
		}
		for (u = s; isalpha((unsigned char)*s); s++)
			;
		unit = duration_unit_us(u, (size_t)(s - u));
		if (unit < 0 || whole > max_us / unit)
			return -1;
		total += whole * unit + frac * unit / scale;
		if (total > max_us)
			return -1;
		while (*s == ' ')
			s++;
	}
	*ret = (total + 999) / 1000;
	return 0;
}

int parse_size(const char *s, uint64_t *ret)
{
	char digits[32];
	size_t n = strspn(s, "0123456789");
	unsigned shift = 0;
	uint64_t v;

	if (n == 0 || n >= sizeof digits)
		return -1;
	memcpy(digits, s, n);
	digits[n] = 0;
	if (s[n]) {
		const char *units = "KMGT", *u = strchr(units, toupper((unsigned char)s[n]));

		if (!u || !*u || s[n + 1])
			return -1;
		shift = (unsigned)(u - units + 1) * 10;
	}
	if (parse_u64(digits, UINT64_MAX >> (shift + 1), &v) < 0)
		return -1;
	*ret = v << shift;
	return 0;
}

int parse_port(const char *s, uint16_t *ret)
{
	uint64_t v;

	if (*s == '0' || parse_u64(s, 65535, &v) < 0 || v == 0)
		return -1;
	*ret = (uint16_t)v;
	return 0;
}

int parse_signal(const char *s, int *ret)
{
	uint64_t v;

	if (parse_u64(s, (uint64_t)SIGRTMAX, &v) == 0 && v > 0)
		return *ret = (int)v, 0;
	if (strncasecmp(s, "SIG", 3) == 0)
		s += 3;
	for (int i = 1; i < SIGRTMIN; i++) {
		const char *abbrev = sigabbrev_np(i);

		if (abbrev && strcasecmp(abbrev, s) == 0)
			return *ret = i, 0;
	}
	return -1;
}

const char *signal_name(int sig)
{
	static char names[8][16];
	static unsigned next;
	const char *abbrev = sigabbrev_np(sig);
	char *out = names[next++ % 8];

	if (abbrev)
		snprintf(out, sizeof names[0], "SIG%s", abbrev);
	else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
		snprintf(out, sizeof names[0], "SIGRT+%d", sig - SIGRTMIN);
	else
		snprintf(out, sizeof names[0], "signal %d", sig);
	return out;
}
