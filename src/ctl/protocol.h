/* Numbers of the control API that both sides know; see sbxsv-api(7). */
#pragma once

#define CTL_PROTOCOL   1
#define CTL_BODY_MAX   (64u << 10)
#define CTL_TARGET_MAX 2048u
#define CTL_LINES_MAX  100000u

/* Of `sbxsv run`, see join.c. */
#define CTL_RUN_SOCKET  "run.sock"
#define CTL_RUN_VERSION 1
