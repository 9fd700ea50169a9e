/* The two pages of `sbxsv status`. Texts are owned by the caller. */
#pragma once
#include "base/json.h"
#include "cli/cli.h"

void status_print_app(const struct js *app); /* as GET /v1/apps/NAME tells it */

char *status_duration(const struct js *app,
		      const char *key); /* of milliseconds; NULL: there is no such key */
char *status_isolation_word(const struct js *app);
char *status_session_note(const struct js *app);
