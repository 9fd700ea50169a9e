/* An observer across an exec of the supervisor. See observer.h. */
#include "trace/observer_internal.h"
#include <unistd.h>

bool observer_freeze(struct observer *o, unsigned wait_ms)
{
	const uint64_t one = 1;
	bool ear, judge;

	(void)!write(o->stop, &one, sizeof one);
	ear = ear_join(o, wait_ms);
	(void)pthread_mutex_lock(&o->lock);
	o->draining = true;
	(void)pthread_cond_signal(&o->work);
	(void)pthread_mutex_unlock(&o->lock);
	judge = judge_join(o, wait_ms);
	if (ear && judge && o->used[o->fill]) { /* it had ended, or came too late for these */
		observer_start_judge(o);
		judge = judge_join(o, wait_ms);
	}
	observer_take_news(o);
	return ear && judge;
}

void observer_thaw(struct observer *o)
{
	(void)pthread_mutex_lock(&o->lock);
	o->draining = false;
	(void)pthread_mutex_unlock(&o->lock);
	o->ear_again = o->ear.there; /* it ends when it can: on_bell() */
	if (!o->ear.there)
		ear_wait(o);
}

const void *observer_judge(const struct observer *o)
{
	return o->c.judge;
}

struct js *observer_save(struct keep *k, const struct observer *o)
{
	struct js *j = js_obj();

	keep_fd(k, j, "listener", o->c.listener);
	keep_fd(k, j, "root", o->c.root);
	keep_fd(k, j, "mntns", o->c.mntns);
	keep_fd(k, j, "diag", o->c.diag);
	js_add_bool(j, "network_off", o->c.network_off);
	return j;
}

void observer_config_restore(struct keep *k, const struct js *j, struct observer_config *ret)
{
	ret->listener = keep_take_fd(k, j, "listener");
	ret->root = keep_take_fd(k, j, "root");
	ret->mntns = keep_take_fd(k, j, "mntns");
	ret->diag = keep_take_fd(k, j, "diag");
	ret->network_off = js_bool_or(j, "network_off", false);
}
