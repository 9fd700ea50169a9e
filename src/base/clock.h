/* Time. Everything is monotonic but timestamps shown to people. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define CLK_STAMP_LEN sizeof("2026-10-25T20:05:42.123Z")

int64_t clk_mono_ms(void);
int64_t clk_mono_us(void);
int64_t clk_boot_ms(void); /* goes on while the machine sleeps, as the person's hours do */
int64_t clk_wall_ms(void);
/* RFC 3339, UTC, milliseconds, into buf of at least CLK_STAMP_LEN bytes. Returns buf. */
char *clk_stamp(int64_t wall_ms, char *buf, size_t cap);
/* The same back: "2026-10-25T20:05:42.123Z", the fraction may be missing; `len` bytes. 0, or -1 with *ret
 * untouched. */
int clk_parse_stamp(const char *text, size_t len, int64_t *ret);
