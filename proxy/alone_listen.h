/* The listening socket of a stand-alone proxy. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

/* `text`: PORT (of 127.0.0.1), ADDRESS:PORT or [ADDRESS]:PORT; port 0 takes a free one. An address that is not
 * loopback needs `anywhere`. -1 with *e. *ret_where: what it listens on; owned by caller. */
int alone_listen(const char *text, bool anywhere, char **ret_where, struct err **e);
