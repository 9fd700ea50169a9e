/* What each operation of the API does: one function a line of the table in doc/design.md section 12. */
#include "ctl/internal.h"
#include "config.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Exit codes of doc/design.md section 7, as the API carries them. */
enum { CODE_OK = 0, CODE_FAILED = 1, CODE_NOT_RUNNING = 3, CODE_NO_APP = 4 };

/* A command given to the supervisor. It outlives the request when the client leaves: the supervisor calls
 * back anyway. */
struct op {
	struct request *r; /* NULL: nobody waits any more */
	struct js *result; /* set before the supervisor's function returned */
	struct js *report; /* of a reload, until it is in force */
	bool returned;
};

static enum MHD_Result no_app(struct request *r)
{
	CLEANUP_FREE char *text = sup_no_app(r->ctl->sup, r->call.app);

	return req_error(r, 404, CODE_NO_APP, text);
}

static enum MHD_Result version(struct request *r)
{
	struct js *j = js_obj();

	js_add_str(j, "version", PACKAGE_VERSION);
	js_add_int(j, "protocol", CTL_PROTOCOL);
	js_add_int(j, "pid", getpid());
	js_add_str(j, "started", r->ctl->started);
	js_add_bool(j, "shutting_down", sup_shutting_down(r->ctl->sup));
	js_add_int(j, "upgrades", sup_upgrades(r->ctl->sup));
	return req_reply(r, 200, j);
}

static enum MHD_Result status(struct request *r)
{
	struct js *j = sup_status(r->ctl->sup, r->call.usage), *c = js_obj();

	js_add_int(c, "connections", r->ctl->connections);
	js_add_int(c, "streams", r->ctl->streams);
	js_add_int(c, "streams_cut", (int64_t)r->ctl->cut);
	js_add_int(c, "refused", (int64_t)r->ctl->refused);
	js_add(j, "control", c);
	return req_reply(r, 200, j);
}

static enum MHD_Result app_status(struct request *r)
{
	struct js *j = sup_app_status(r->ctl->sup, r->call.app);

	return j ? req_reply(r, 200, j) : no_app(r);
}

static enum MHD_Result reply_result(struct request *r, struct js *result)
{
	int64_t code = js_int_or(result, "code", CODE_OK); /* a report has none */

	if (code == CODE_NO_APP) {
		CLEANUP_JS struct js *owned = result;
		const char *text = js_str(owned, "message");

		return req_error(r, 404, CODE_NO_APP, text ? text : "no such app");
	}
	return req_reply(r, 200, result);
}

static void on_result(void *data, struct js *j)
{
	struct op *op = data;

	if (!op->returned) {
		op->result = j;
		return;
	}
	if (op->r) {
		op->r->op = NULL;
		op->r->result = j;
		req_resume(op->r);
	} else {
		js_free(j);
	}
	free(op);
}

static void on_done(void *data, int code, const char *message)
{
	struct js *j = js_obj();

	js_add_int(j, "code", code);
	js_add_str(j, "message", message ? message : "");
	on_result(data, j);
}

static struct op *op_create(struct request *r)
{
	struct op *op = xcalloc(1, sizeof *op);

	op->r = r;
	return op;
}

/* The supervisor was asked: its answer is here, or it comes later. */
static enum MHD_Result op_answer(struct op *op)
{
	struct request *r = op->r;
	struct js *result = TAKE_PTR(op->result);

	if (result) {
		free(op);
		return reply_result(r, result);
	}
	op->returned = true;
	r->op = op;
	r->phase = REQ_WAITING;
	req_suspend(r);
	return MHD_YES;
}

static enum MHD_Result command(struct request *r)
{
	enum sup_verb verb = r->call.op == CTL_START  ? SUP_START
			     : r->call.op == CTL_STOP ? SUP_STOP
						      : SUP_RESTART;
	const char *app = r->call.app[0] ? r->call.app : NULL;
	struct op *op;

	if (app && !sup_has_app(r->ctl->sup, app))
		return no_app(r);
	op = op_create(r);
	if (r->call.prepare)
		sup_prepare_again(r->ctl->sup, app);
	sup_command(r->ctl->sup, verb, app, r->call.wait, on_done, op);
	return op_answer(op);
}

static enum MHD_Result rule(struct request *r)
{
	const struct sup_rule want = {.deny = r->call.op == CTL_DENY,
				      .host = r->call.host,
				      .for_ms = r->call.for_ms,
				      .saved = r->call.saved};
	struct op *op = op_create(r);

	sup_rule(r->ctl->sup, r->call.app, &want, on_result, op);
	return op_answer(op);
}

enum MHD_Result answer_waited(struct request *r)
{
	struct js *result = TAKE_PTR(r->result);

	if (!result) /* resumed because the server ends */
		return req_error(r, 503, CODE_FAILED, "the supervisor ends");
	return reply_result(r, result);
}

void answer_detach(struct request *r)
{
	if (r->op)
		r->op->r = NULL;
	r->op = NULL;
}

static enum MHD_Result kill_app(struct request *r)
{
	CLEANUP_ERR struct err *e = NULL;
	struct js *j;

	if (sup_kill(r->ctl->sup, r->call.app, r->call.signal, &e)) {
		switch (err_code(e)) {
		case ENOENT:
			return req_error(r, 404, CODE_NO_APP, err_msg(e));
		case ESRCH:
			return req_error(r, 409, CODE_NOT_RUNNING, err_msg(e));
		default:
			return req_error(r, 500, CODE_FAILED, err_msg(e));
		}
	}
	j = js_obj();
	js_add_int(j, "code", CODE_OK);
	return req_reply(r, 200, j);
}

/* The report of a reload is sent when the proxy judges by what was read. */
static void on_settled(void *data)
{
	struct op *op = data;

	on_result(op, TAKE_PTR(op->report));
}

static enum MHD_Result reload(struct request *r)
{
	struct op *op;

	if (sup_shutting_down(r->ctl->sup))
		return req_error(r, 409, CODE_FAILED, "the supervisor is shutting down");
	op = op_create(r);
	op->report = sup_reload(r->ctl->sup);
	sup_settle_rules(r->ctl->sup, on_settled, op);
	return op_answer(op);
}

static enum MHD_Result shut_down(struct request *r)
{
	struct js *j = js_obj();

	js_add_int(j, "code", CODE_OK);
	r->shutdown = true;
	return req_reply(r, 200, j);
}

/* An answer means that nothing came of it: else the connection ends with the program that would answer. */
static enum MHD_Result upgrade(struct request *r)
{
	struct op *op = op_create(r);

	if (r->call.wait) {
		sup_upgrade(r->ctl->sup, on_done, op);
	} else {
		sup_upgrade(r->ctl->sup, NULL, NULL);
		on_done(op, CODE_OK, "asked for");
	}
	return op_answer(op);
}

static enum MHD_Result violations(struct request *r)
{
	const char *app = r->call.app[0] ? r->call.app : NULL;

	if (app && !sup_has_app(r->ctl->sup, app))
		return no_app(r);
	return req_reply(r, 200, sup_violations(r->ctl->sup, app, r->call.since_ms));
}

static enum MHD_Result ports(struct request *r)
{
	return req_reply(r, 200, sup_ports(r->ctl->sup));
}

enum MHD_Result answer(struct request *r)
{
	static enum MHD_Result (*const table[CTL_OP_MAX])(struct request *) = {
		[CTL_VERSION] = version,      [CTL_STATUS] = status,      [CTL_APP] = app_status,
		[CTL_START] = command,        [CTL_STOP] = command,       [CTL_RESTART] = command,
		[CTL_KILL] = kill_app,        [CTL_ALLOW] = rule,         [CTL_DENY] = rule,
		[CTL_RELOAD] = reload,        [CTL_SHUTDOWN] = shut_down, [CTL_LOGS] = stream_logs,
		[CTL_EVENTS] = stream_events, [CTL_PORTS] = ports,
		[CTL_VIOLATIONS] = violations, [CTL_UPGRADE] = upgrade,
	};

	return table[r->call.op](r);
}
