/*
 * The rules of a stand-alone proxy: the [Network] lines of a unit, one a line, from a file and from options.
 *
 * Theory of operation. Every line, and every option as a line of its own, becomes a setting with its origin
 * ("rules.conf:3", "command line"). The values are judged by the functions of src/policy, the same that a
 * unit's go through; lines are read as strictly as a unit's (src/unit/reader.c): a comment needs its own line,
 * nothing is continued, an unknown key is an error. All problems are collected, and with one there is no
 * policy: what runs goes on with the rules it has.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "policy/policy.h"

#define POLICYFILE_MAX      (1u << 20)
#define POLICYFILE_LINE_MAX 8192 /* as in a unit */
#define POLICYFILE_PROBLEMS 50
#define POLICYFILE_OPTIONS  "command line" /* where an option is said to stand, as FILE:LINE of a line */

/* `options`: "Key=value" each; they come after the file. `shown`: the file's name in origins. Each problem is
 * "FILE:LINE: text". NULL when there is any. */
struct policy *policyfile_parse(const char *text, size_t len, const char *shown, const struct strv *options,
				struct strv *problems);
/* Reads the file first, which must be one that others cannot write, nor read when it holds a password. NULL
 * path: options alone. */
struct policy *policyfile_read(const char *path, const struct strv *options, struct strv *problems);
