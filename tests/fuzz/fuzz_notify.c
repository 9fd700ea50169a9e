/* sd_notify messages: bounded, printable, and the same result for the same lines. */
#include "monitor/notify.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct notify_message m;

	if (!notify_parse((const char *)data, size, &m))
		return 0;
	assert(m.extend_ms >= 0 && m.extend_ms <= NOTIFY_EXTEND_MAX_MS);
	assert(!m.status || m.has_status);
	for (const char *s = m.status; s && *s; s++)
		assert(((unsigned char)*s >= 32 && *s != 127) || *s == 9);
	assert(!m.status || strlen(m.status) <= 4 * NOTIFY_STATUS_MAX);
	notify_message_finish(&m);
	return 0;
}
