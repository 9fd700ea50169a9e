/* The programs' own messages, one line each on stderr: "sbxsvd: warning: text". Control bytes are escaped. */
#pragma once
#include "base/cleanup.h"
#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* `program` must outlive the process's logging. Default level: info. */
void log_init(const char *program, enum log_level max);
void log_timestamps(bool on);
void log_msg(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define log_error(...)   log_msg(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_msg(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_msg(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_msg(LOG_LEVEL_DEBUG, __VA_ARGS__)
