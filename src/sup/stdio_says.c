#include "sup/stdio_says.h"
#include "base/str.h"
#include "sup/sup.h"
#include "unit/unit.h"
#include <sys/wait.h>

const char *sup_instance_hello(const struct js *m, int version)
{
	const char *app = js_str(m, "app");

	return str_eq(js_str(m, "t"), "run") && js_int_or(m, "v", 0) == version && app && unit_name_valid(app)
		       ? app
		       : NULL;
}

static bool started(const struct js *m, struct instance_says *s)
{
	int64_t pid = js_int_or(m, "pid", 0);
	const struct js *isolation = js_get(m, "isolation");

	if (pid < 2 || pid > INT32_MAX)
		return false;
	s->word = SAYS_STARTED;
	s->pid = (pid_t)pid;
	s->again = js_bool_or(m, "again", false);
	s->isolation = js_is_obj(isolation) ? isolation : NULL;
	return true;
}

static bool exited(const struct js *m, struct instance_says *s)
{
	int64_t status = js_int_or(m, "status", -1);

	if (status < 0 || status > 0xffff || (!WIFEXITED((int)status) && !WIFSIGNALED((int)status)))
		return false;
	s->word = SAYS_EXITED;
	s->status = (int)status;
	return true;
}

static bool refused(const struct js *m, struct instance_says *s)
{
	const struct js *event = js_get(m, "event");

	if (!js_is_obj(event) || !str_eq(js_str(event, "type"), "violation"))
		return false;
	s->word = SAYS_REFUSED;
	s->event = event;
	return true;
}

static bool lost(const struct js *m, struct instance_says *s)
{
	int64_t n = js_int_or(m, "n", 0);

	if (n < 1)
		return false;
	s->word = SAYS_LOST;
	s->n = (uint64_t)n;
	return true;
}

bool instance_says_read(const struct js *m, struct instance_says *ret)
{
	static const struct {
		const char *type;
		bool (*read)(const struct js *m, struct instance_says *s);
	} kinds[] = {{"started", started}, {"exited", exited}, {"event", refused}, {"lost", lost}};
	const char *type = js_str(m, "t");
	struct instance_says s = {0};

	for (size_t i = 0; i < ELEMENTS(kinds); i++)
		if (str_eq(type, kinds[i].type) && kinds[i].read(m, &s)) {
			*ret = s;
			return true;
		}
	return false;
}
