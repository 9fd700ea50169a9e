/* Messages of run.sock: whatever they hold, what is taken of them is inside its bounds. */
#include "sup/stdio_says.h"
#include "sup/sup.h"
#include "unit/unit.h"
#include <assert.h>
#include <sys/wait.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct js *m = js_parse((const char *)data, size, NULL);
	const char *app = m ? sup_instance_hello(m, 1) : NULL;
	struct instance_says s;

	assert(!app || unit_name_valid(app));
	if (m && instance_says_read(m, &s)) {
		assert(!app);
		assert((s.word == SAYS_STARTED) == (s.pid > 1));
		assert(s.pid >= 0 && (!s.isolation || js_is_obj(s.isolation)));
		assert((s.word == SAYS_REFUSED) == (s.event != NULL));
		assert(!s.event || js_is_obj(s.event));
		assert((s.word == SAYS_LOST) == (s.n > 0));
		assert(WIFEXITED(s.status) || WIFSIGNALED(s.status));
	}
	js_free(m);
	return 0;
}
