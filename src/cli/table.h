/* A table for people: columns as wide as their widest cell, the last one free. */
#pragma once
#include "base/str.h"

struct table {
	struct strv cells; /* row by row; the first row is the header */
	size_t columns;
	size_t edge; /* lines end here at the latest; 0: at the edge of the terminal, if the last column has room for it */
};
size_t table_terminal_width(size_t otherwise);
/* Adds a cell. `text` is escaped; NULL or "" shows as "-". */
void table_add(struct table *t, const char *text);
void table_addf(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void table_print(struct table *t); /* and empties it */

char *format_duration(int64_t ms);  /* "3d 4h", "12m 5s", "850ms"; owned by caller */
char *format_bytes(uint64_t bytes); /* "12.3M"; owned by caller */
