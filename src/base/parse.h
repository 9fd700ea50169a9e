/* Strict text to value. Each returns 0, or -1 with *ret untouched; no leading space or sign, no trailing
 * text. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

int parse_u64(const char *s, uint64_t max, uint64_t *ret); /* decimal digits only */
int parse_bool(const char *s, bool *ret);                  /* yes no true false on off 1 0 */
/* "500ms" "2s" "5min" "1h" "1d", sums such as "1min 30s"; a bare number is seconds, decimals allowed ("0.3").
 * Milliseconds; at most 10 years. */
int parse_duration_ms(const char *s, int64_t *ret);
int parse_size(const char *s, uint64_t *ret); /* bytes; suffix K M G T are powers of 1024 */
int parse_port(const char *s, uint16_t *ret); /* 1..65535, no leading zero */
int parse_signal(const char *s, int *ret);    /* TERM, SIGTERM, 15 */
const char *signal_name(int sig);             /* "SIGTERM", "SIGRT+1"...; static storage, never NULL */
