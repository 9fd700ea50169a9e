/* A violation, as status, violations and exec show it. */
#pragma once
#include "base/json.h"

/* "file-read /home/ann/fonts 3x by python3 (pid 41): nothing grants it"; escaped; owned by caller. */
char *violation_text(const struct js *v);
/* What to do: a command, a line of the unit, or a remark. NULL: nothing is to be done. Escaped; owned by caller.
 * `app` NULL: an option of exec. */
char *violation_advice(const struct js *v, const char *app);
