/* The state table, walked with a model of the world in place of processes and clocks; and the times around
 * it. */
#include "sup/restart.h"
#include "sup/states.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --- the model: what the actions would do --- */

enum after { STAY, AGAIN, RETRY, FORGET, REST };
enum timer { NO_TIMER, READY_TIMER, STOP_TIMER, BACKOFF_TIMER };
struct model {
	enum app_state state;
	bool holding;  /* ports are being taken */
	bool building; /* a process exists, its jail is being built */
	bool program;  /* a process exists, its program runs */
	bool told, killed, forgotten, attached;
	enum after after;
	enum timer timer;
	unsigned launches, forgets;
};

static bool alive(const struct model *m)
{
	return m->building || m->program;
}

static void happen(struct model *m, enum app_event e);

static void tell(struct model *m, enum after after)
{
	m->after = after;
	if (alive(m)) {
		m->told = true;
		m->timer = STOP_TIMER;
		return;
	}
	m->holding = false;
	happen(m, after == AGAIN   ? EV_NOW
		  : after == RETRY ? EV_AGAIN
		  : after == REST  ? EV_RESTED
				   : EV_DOWN);
}

static void act(struct model *m, enum app_action a)
{
	switch (a) {
	case ACT_BEGIN:
		assert_false(alive(m)); /* never doubled */
		assert_false(m->holding);
		m->holding = true;
		m->after = STAY;
		break;
	case ACT_LAUNCH:
		assert_false(alive(m));
		assert_true(m->holding);
		m->holding = false;
		m->building = true;
		m->told = m->killed = m->attached = false;
		m->launches++;
		m->timer = READY_TIMER;
		break;
	case ACT_ATTACH:
		assert_true(m->program);
		assert_false(m->attached);
		m->attached = true;
		break;
	case ACT_READY:
		assert_true(m->program && m->attached);
		m->timer = NO_TIMER;
		break;
	case ACT_STOP:
		tell(m, STAY);
		break;
	case ACT_AGAIN:
		tell(m, AGAIN);
		break;
	case ACT_LATE:
	case ACT_HUNG:
		assert_true(alive(m));
		tell(m, RETRY);
		break;
	case ACT_REMOVE:
		tell(m, FORGET);
		break;
	case ACT_TO_STAY:
		m->after = STAY;
		break;
	case ACT_TO_AGAIN:
		m->after = AGAIN;
		break;
	case ACT_TO_FORGET:
		m->after = FORGET;
		break;
	case ACT_KILL:
		assert_true(alive(m));
		m->killed = true;
		m->timer = STOP_TIMER;
		break;
	case ACT_WAIT:
		assert_false(alive(m) || m->holding);
		m->timer = BACKOFF_TIMER;
		break;
	case ACT_BLOCKED:
		assert_false(alive(m));
		break;
	case ACT_CALM: /* of an idle app whose port is being taken back: that ends */
		m->holding = false;
		assert_false(alive(m));
		break;
	case ACT_REST:
		assert_false(alive(m) || m->holding);
		if (m->after == FORGET)
			m->forgotten = true;
		break;
	case ACT_FORGET:
		m->holding = false;
		assert_false(alive(m));
		m->forgotten = true;
		break;
	case ACT_HOLD:
	case ACT_WAKE:
		assert_false(alive(m));
		m->holding = true;
		m->after = STAY;
		m->timer = NO_TIMER;
		break;
	case ACT_HELD:
		assert_false(alive(m) || m->holding);
		break;
	case ACT_HOLD_LATER:
		assert_false(alive(m) || m->holding);
		m->timer = BACKOFF_TIMER;
		break;
	case ACT_UNUSED:
		assert_true(m->program);
		tell(m, REST);
		break;
	case ACT_TO_IDLE:
		if (m->after == STAY || m->after == FORGET)
			m->after = REST;
		break;
	case ACT_RESTED:
		assert_false(alive(m) || m->holding);
		if (rand() % 2) /* the unit is another one by now */
			happen(m, EV_IDLE);
		break;
	case ACT_NONE:
		break;
	case ACT_MAX:
		fail();
	}
}

static void check(const struct model *m)
{
	switch (m->state) {
	case APP_STOPPED:
	case APP_FAILED:
	case APP_WAITING:
		assert_false(alive(m) || m->holding);
		assert_int_equal(m->timer, NO_TIMER);
		break;
	case APP_BACKOFF:
		assert_false(alive(m) || m->holding);
		assert_int_equal(m->timer, BACKOFF_TIMER);
		break;
	case APP_IDLE:
		assert_false(alive(m));
		assert_true(m->timer == NO_TIMER || (m->timer == BACKOFF_TIMER && !m->holding));
		break;
	case APP_STARTING:
		assert_true(alive(m) || m->holding);
		break;
	case APP_RUNNING:
	case APP_UNHEALTHY:
		assert_true(m->program);
		break;
	case APP_STOPPING:
		assert_true(alive(m) && m->told);
		assert_int_equal(m->timer, STOP_TIMER);
		break;
	default:
		fail_msg("state %s is not reachable yet", app_state_name(m->state));
	}
}

static void happen(struct model *m, enum app_event e)
{
	struct state_step st = state_step(m->state, e);

	assert_true(st.valid);
	if (st.next != m->state)
		m->timer = NO_TIMER;
	m->state = st.next;
	act(m, st.action);
}

static enum app_event when_gone(struct model *m)
{
	m->building = m->program = false;
	if (m->state == APP_STOPPING)
		switch (m->after) {
		case STAY:
		case FORGET:
			return EV_DOWN;
		case AGAIN:
			return EV_NOW;
		case RETRY:
			return rand() % 4 ? EV_AGAIN : EV_GIVEUP;
		case REST:
			return EV_RESTED;
		}
	switch (rand() % 3) {
	case 0:
		return m->state != APP_STARTING && rand() % 2 ? EV_RESTED : EV_DOWN;
	case 1:
		return EV_AGAIN;
	}
	return EV_GIVEUP;
}

/* One thing that the world could do now. */
static void world(struct model *m)
{
	switch (rand() % 14) {
	case 0:
		happen(m, EV_START);
		break;
	case 1:
		happen(m, EV_STOP);
		break;
	case 2:
		happen(m, EV_RESTART);
		break;
	case 3:
		if (rand() % 8 == 0)
			happen(m, EV_REMOVE);
		break;
	case 4:
	case 5:
		if (m->holding) {
			static const enum app_event answers[] = {EV_HELD, EV_HELD, EV_BLOCKED, EV_REFUSED,
								 EV_SHORT};
			enum app_event e = answers[rand() % 5];

			m->holding = e == EV_HELD && m->state == APP_STARTING;
			happen(m, e);
		} else if (m->state == APP_WAITING) {
			m->holding = true;
			happen(m, EV_CLEAR);
		}
		break;
	case 6:
	case 7:
		if (m->building) {
			m->building = false;
			m->program = true;
			if (m->state == APP_STARTING)
				happen(m, EV_UP);
		}
		break;
	case 8:
	case 9:
		if (m->program && m->state == APP_STARTING && m->attached)
			happen(m, EV_READY);
		else if (m->state == APP_RUNNING && rand() % 4 == 0)
			happen(m, rand() % 2 ? EV_SICK : EV_HUNG);
		else if (m->state == APP_UNHEALTHY)
			happen(m, rand() % 3 == 0 ? EV_SICK : rand() % 2 ? EV_HUNG : EV_READY);
		break;
	case 10:
		if (alive(m) && (m->killed || rand() % 4 == 0))
			happen(m, when_gone(m));
		break;
	case 12:
		if (m->state == APP_IDLE && !m->holding)
			happen(m, EV_WAKE);
		else if ((m->state == APP_RUNNING || m->state == APP_UNHEALTHY) && rand() % 4 == 0)
			happen(m, EV_UNUSED);
		break;
	case 13:
		if (rand() % 4 == 0)
			happen(m, EV_IDLE);
		break;
	case 11:
		if (m->timer != NO_TIMER)
			happen(m, m->timer == READY_TIMER  ? EV_LATE
				  : m->timer == STOP_TIMER ? EV_TIMEOUT
							   : EV_DUE);
		break;
	}
}

static void any_history_is_sound(void **state)
{
	unsigned seen[APP_STATE_MAX] = {0}, forgotten = 0, launches = 0;

	(void)state;
	srand(1);
	for (int walk = 0; walk < 2000; walk++) {
		struct model m = {.state = APP_STOPPED};

		for (int i = 0; i < 400 && !m.forgotten; i++) {
			world(&m);
			if (!m.forgotten)
				check(&m);
			else
				assert_false(alive(&m));
			seen[m.state]++;
		}
		forgotten += m.forgotten;
		launches += m.launches;
	}
	assert_true(forgotten > 100 && launches > 1000);
	for (int i = 0; i < APP_STATE_MAX; i++)
		assert_true(seen[i] > 100);
}

/* --- the table --- */

static void requests_mean_something_everywhere(void **state)
{
	(void)state;
	for (int s = 0; s < APP_STATE_MAX; s++)
		for (int e = EV_START; e <= EV_REMOVE; e++) {
			assert_true(state_step(s, e).valid);
			assert_true(app_event_is_request(e));
		}
	for (int s = 0; s < APP_STATE_MAX; s++)
		assert_true(state_step(s, EV_IDLE).valid);
	assert_true(app_event_is_request(EV_IDLE));
	assert_false(app_event_is_request(EV_HELD));
}

static void a_crash_while_stopping_never_restarts_by_policy(void **state)
{
	(void)state;
	assert_int_equal(state_step(APP_RUNNING, EV_STOP).next, APP_STOPPING);
	assert_int_equal(state_step(APP_STOPPING, EV_DOWN).next, APP_STOPPED);
	/* `stopped` is entered only by way of an end, or from a state where nothing runs */
	for (int s = 0; s < APP_STATE_MAX; s++)
		for (int e = 0; e < EV_MAX; e++) {
			struct state_step st = state_step(s, e);
			bool ran = s == APP_STARTING || s == APP_RUNNING || s == APP_UNHEALTHY ||
				   s == APP_STOPPING;

			if (st.valid && st.next == APP_STOPPED && ran)
				assert_int_equal(e, EV_DOWN);
		}
}

static void nothing_outside_the_table(void **state)
{
	(void)state;
	assert_false(state_step(APP_STATE_MAX, EV_START).valid);
	assert_false(state_step(APP_STOPPED, EV_MAX).valid);
	assert_string_equal(app_state_name(APP_BACKOFF), "backoff");
	assert_string_equal(app_state_name(APP_FAILED), "failed");
	assert_string_equal(app_event_name(EV_TIMEOUT), "timeout");
	assert_string_equal(app_action_name(ACT_FORGET), "forget");
	assert_string_equal(app_state_name(APP_STATE_MAX), "?");
}

/* --- restart --- */

static void limit_is_exact(void **state)
{
	(void)state;
	for (unsigned burst = 1; burst < 20; burst++) {
		struct restart r = {0};

		for (unsigned i = 0; i < burst; i++) {
			assert_false(restart_exhausted(&r, burst, 1000, 5000 + i));
			restart_started(&r, burst, 5000 + i);
		}
		assert_true(restart_exhausted(&r, burst, 1000, 5000 + burst));
		assert_true(restart_exhausted(&r, burst, 1000, 5999));
		assert_false(
			restart_exhausted(&r, burst, 1000, 6000)); /* the first one is out of the window */
		restart_started(&r, burst, 6000);
		assert_int_equal(restart_exhausted(&r, burst, 1000, 6000), burst == 1 || 5001 + 1000 > 6000);
		restart_reset(&r);
		assert_false(restart_exhausted(&r, burst, 1000, 6001));
		restart_finish(&r);
	}
}

static void limit_may_change_or_be_absent(void **state)
{
	struct restart r = {0};

	(void)state;
	for (int i = 0; i < 100; i++)
		restart_started(&r, 0, i);
	assert_false(restart_exhausted(&r, 0, 1000, 100));
	for (int i = 0; i < 3; i++)
		restart_started(&r, 3, 100 + i);
	assert_true(restart_exhausted(&r, 3, 1000, 110));
	assert_false(restart_exhausted(&r, 5, 1000, 110)); /* raised by a reload: two more */
	restart_started(&r, 5, 111);
	restart_started(&r, 5, 112);
	assert_true(restart_exhausted(&r, 5, 1000, 113));
	assert_true(restart_exhausted(&r, 2, 1000, 113)); /* lowered */
	assert_false(restart_exhausted(&r, 2, 2, 113));
	restart_finish(&r);
	for (unsigned i = 0; i < 100000; i++) { /* as many as the unit reader allows */
		assert_false(restart_exhausted(&r, 100000, 1000000, i));
		restart_started(&r, 100000, i);
	}
	assert_true(restart_exhausted(&r, 100000, 1000000, 100000));
	restart_finish(&r);
}

static void backoff_doubles_and_begins_anew(void **state)
{
	struct restart r = {0};

	(void)state;
	assert_int_equal(restart_delay(1, 100, 30000), 100);
	assert_int_equal(restart_delay(2, 100, 30000), 200);
	assert_int_equal(restart_delay(9, 100, 30000), 25600);
	assert_int_equal(restart_delay(10, 100, 30000), 30000);
	assert_int_equal(restart_delay(4000000000u, 100, 30000), 30000);
	assert_int_equal(restart_delay(4000000000u, 0, 30000), 0);
	assert_int_equal(restart_delay(5, 1000, 500), 1000); /* MaxSec below Sec: Sec */
	restart_ended(&r, 0);
	restart_ended(&r, 9999);
	assert_int_equal(r.failures, 2);
	restart_ended(&r, 10000);
	assert_int_equal(r.failures, 1);
	restart_finish(&r);
}

static void shutdown_leaves_time_to_die(void **state)
{
	(void)state;
	assert_int_equal(shutdown_grace(300, 50), 105);
	assert_int_equal(shutdown_grace(300, 0), 280);
	assert_int_equal(shutdown_grace(300, 1000), SHUTDOWN_GRACE_MIN_MS);
	assert_int_equal(shutdown_grace(0, 1), SHUTDOWN_GRACE_MIN_MS);
	assert_true(shutdown_grace(10000, 50) > 9700);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_history_is_sound),
		cmocka_unit_test(requests_mean_something_everywhere),
		cmocka_unit_test(a_crash_while_stopping_never_restarts_by_policy),
		cmocka_unit_test(nothing_outside_the_table),
		cmocka_unit_test(limit_is_exact),
		cmocka_unit_test(limit_may_change_or_be_absent),
		cmocka_unit_test(backoff_doubles_and_begins_anew),
		cmocka_unit_test(shutdown_leaves_time_to_die),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
