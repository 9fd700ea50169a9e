/*
 * top: what the apps use, now. Processor time and bytes are counters of the supervisor, so each picture is the
 * difference of two looks; the first one waits for its second.
 */
#include "cli/keys.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "base/clock.h"
#include "base/parse.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

enum { OPT_ONCE = CLI_LONG };
#define LINE_WIDTH  80
#define ROWS_AROUND 5 /* two lines of head, the header, one that says what is left out, the cursor's */

struct look {
	struct js *status;
	int64_t at_us;
};

struct row {
	const struct js *app; /* into the later look */
	bool known;           /* it was in the earlier one too, as the same process */
	double cpu;           /* percent of one processor */
	int64_t in_per_s, out_per_s;
};

static const struct js *find(const struct js *status, const char *name)
{
	for (const struct js *a = js_first(js_get(status, "apps")); a; a = js_next(a))
		if (str_eq(js_str(a, "name"), name))
			return a;
	return NULL;
}

/* A counter that went back is another process's: then nothing is known of this interval. */
static int64_t rate(const struct js *now, const struct js *before, const char *key, int64_t us)
{
	int64_t d = js_int_or(now, key, 0) - js_int_or(before, key, 0);

	return d > 0 && us > 0 ? (int64_t)((double)d * 1e6 / (double)us) : 0;
}

static void fill(struct row *r, const struct js *app, const struct look *before, int64_t us)
{
	const struct js *old = find(before->status, js_str(app, "name"));
	int64_t pid = js_int_or(app, "pid", 0);

	*r = (struct row){.app = app};
	if (!old || us <= 0)
		return;
	r->in_per_s = rate(js_get(app, "counters"), js_get(old, "counters"), "bytes_in", us);
	r->out_per_s = rate(js_get(app, "counters"), js_get(old, "counters"), "bytes_out", us);
	r->known = pid && pid == js_int_or(old, "pid", 0);
	if (r->known)
		r->cpu = (double)rate(app, old, "cpu_ms", us) / 10.; /* milliseconds a second to percent */
}

static int by_use(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int64_t mx = js_int_or(x->app, "memory_bytes", 0), my = js_int_or(y->app, "memory_bytes", 0);

	if (x->cpu != y->cpu)
		return x->cpu < y->cpu ? 1 : -1;
	if (mx != my)
		return mx < my ? 1 : -1;
	return strcmp(js_str(x->app, "name"), js_str(y->app, "name"));
}

/* Rows in the order in which they are shown; owned by caller. */
static struct row *rows_of(const struct look *now, const struct look *before, size_t *ret_n)
{
	const struct js *apps = js_get(now->status, "apps");
	struct row *v = xcalloc(js_len(apps), sizeof *v);
	size_t n = 0;

	for (const struct js *a = js_first(apps); a; a = js_next(a))
		if (js_str(a, "name"))
			fill(&v[n++], a, before, now->at_us - before->at_us);
	if (n)
		qsort(v, n, sizeof *v, by_use);
	*ret_n = n;
	return v;
}

/* --- shown --- */

/* At most five characters: "999" "9.9K" "1023M". */
static void bytes_cell(struct table *t, int64_t n, bool there)
{
	static const char units[] = "KMGTPE";
	double v = n > 0 ? (double)n : 0.;
	int u = -1;

	if (!there) {
		table_add(t, NULL);
		return;
	}
	while (v >= 1023.5 && u < 5) {
		v /= 1024.;
		u++;
	}
	if (u < 0)
		table_addf(t, "%.0f", v);
	else
		table_addf(t, v < 99.95 ? "%.1f%c" : "%.0f%c", v, units[u]);
}

static void count_cell(struct table *t, int64_t n, bool there)
{
	if (!there)
		table_add(t, NULL);
	else if (n < 100000)
		table_addf(t, "%" PRId64, n);
	else
		bytes_cell(t, n, true);
}

/* The other columns are at most 9 5 6 5 5 5 5 5 6 wide, with two blanks before each: NAME has the rest. */
#define NAME_WIDTH (LINE_WIDTH - 51 - 2 * 9)

static void name_cell(struct table *t, const char *name)
{
	if (strlen(name) > NAME_WIDTH)
		table_addf(t, "%.*s~", NAME_WIDTH - 1, name);
	else
		table_add(t, name);
}

static void add_row(struct table *t, const struct row *r)
{
	const struct js *c = js_get(r->app, "counters");
	bool runs = js_int_or(r->app, "pid", 0) > 0;

	name_cell(t, js_str(r->app, "name"));
	table_add(t, js_str(r->app, "state"));
	if (r->known)
		table_addf(t, r->cpu < 999.95 ? "%.1f" : "%.0f", r->cpu);
	else
		table_add(t, NULL);
	bytes_cell(t, js_int_or(r->app, "memory_bytes", 0), runs);
	count_cell(t, js_int_or(r->app, "processes", 0), runs);
	count_cell(t, js_int_or(c, "in_open", 0), true);
	count_cell(t, js_int_or(c, "out_open", 0), true);
	bytes_cell(t, r->in_per_s, true);
	bytes_cell(t, r->out_per_s, true);
	count_cell(t, js_int_or(c, "out_denied", 0), true);
}

/* Rows that fit on the terminal; 0: all. */
static size_t room(bool tty)
{
	struct winsize ws;

	if (!tty || ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) < 0 || ws.ws_row <= ROWS_AROUND)
		return 0;
	return (size_t)(ws.ws_row - ROWS_AROUND);
}

static void print_head(const struct js *status, size_t n, bool film)
{
	const struct js *sup = js_get(status, "supervisor");
	CLEANUP_FREE char *up = format_duration(js_int_or(sup, "uptime_ms", 0));

	printf("sbxsv: %zu app%s, supervisor up %s%s%s\n\n", n, n == 1 ? "" : "s", up,
	       js_bool_or(sup, "shutting_down", false) ? ", shutting down" : "", film ? "; q ends" : "");
}

static void print_table(const struct cli *c, const struct look *now, const struct row *v, size_t n,
			bool clear)
{
	static const char *const header[] = {"NAME", "STATE", "CPU%", "MEMORY", "PROCS",
					     "C-IN", "C-OUT", "IN/S", "OUT/S",  "DENIED"};
	struct table t = {.columns = ELEMENTS(header)};
	size_t shown = room(c->tty && clear);

	if (!shown || shown > n)
		shown = n;
	if (clear) /* cursor home, erase below: the terminal's own (ECMA-48 8.3.21, 8.3.39) */
		fputs("\033[H\033[J", stdout);
	print_head(now->status, n, clear);
	for (size_t i = 0; i < ELEMENTS(header); i++)
		table_add(&t, header[i]);
	for (size_t i = 0; i < shown; i++)
		add_row(&t, &v[i]);
	if (n)
		table_print(&t);
	else
		strv_clear(&t.cells);
	if (shown < n)
		printf("... and %zu more\n", n - shown);
}

static void copy(struct js *to, const char *key, const struct js *from, const char *name)
{
	int64_t v;

	if (js_int(from, name, &v) == 0)
		js_add_int(to, key, v);
}

static struct js *row_js(const struct row *r)
{
	static const char *const counts[] = {"in_open",    "out_open", "in_total",  "out_allowed",
					     "out_denied", "bytes_in", "bytes_out", NULL};
	struct js *o = js_obj();

	js_add_str(o, "name", js_str(r->app, "name"));
	js_add_str(o, "state", js_str(r->app, "state"));
	copy(o, "pid", r->app, "pid");
	if (r->known)
		js_add_num(o, "cpu_percent", r->cpu);
	copy(o, "memory_bytes", r->app, "memory_bytes");
	copy(o, "processes", r->app, "processes");
	for (const char *const *k = counts; *k; k++)
		copy(o, *k, js_get(r->app, "counters"), *k);
	js_add_int(o, "bytes_in_per_s", r->in_per_s);
	js_add_int(o, "bytes_out_per_s", r->out_per_s);
	return o;
}

/* One object a picture, one line each. */
static void print_json(const struct look *now, const struct look *before, const struct row *v, size_t n)
{
	CLEANUP_JS struct js *o = js_obj();
	CLEANUP_FREE char *text = NULL, *safe = NULL;
	struct js *apps = js_arr();

	for (size_t i = 0; i < n; i++)
		js_push(apps, row_js(&v[i]));
	js_add_int(o, "interval_ms", (now->at_us - before->at_us) / 1000);
	js_add(o, "apps", apps);
	text = js_print(o);
	safe = remote_json_safe(text, strlen(text));
	puts(safe);
}

/* --- */

static void look_finish(struct look *l)
{
	js_free(l->status);
}

static int look(struct ctl_client *cl, struct look *ret)
{
	struct js *status = NULL;
	int code = remote_call(cl, "GET", "/v1/status?usage=1", NULL, &status);

	if (code)
		return code;
	js_free(ret->status);
	*ret = (struct look){.status = status, .at_us = clk_mono_us()};
	return CLI_OK;
}

static int pictures(struct cli *c, struct ctl_client *cl, uint64_t n, int64_t delay_ms)
{
	CLEANUP(look_finish) struct look before = {0}, now = {0};
	int code = look(cl, &before);

	for (uint64_t i = 0; !code && (!n || i < n); i++) {
		CLEANUP_FREE struct row *v = NULL;
		size_t n_rows;

		if (keys_wait(-1, delay_ms))
			break;
		code = look(cl, &now);
		if (code)
			break;
		v = rows_of(&now, &before, &n_rows);
		if (c->json)
			print_json(&now, &before, v, n_rows);
		else
			print_table(c, &now, v, n_rows, c->tty && n != 1);
		if (fflush(stdout) == EOF) /* nobody reads any more */
			return CLI_OK;
		js_free(before.status);
		before = now;
		now.status = NULL;
	}
	return code;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	const char *count = cli_value(a, 'n'), *delay = cli_value(a, 'd');
	uint64_t n = 0;
	int64_t delay_ms = 1000;
	int code;

	if (a->n_rest)
		return cli_usage(&cmd_top, "top takes no operands: it shows all apps");
	if (count && (parse_u64(count, 1000000, &n) || !n))
		return cli_usage(&cmd_top, "top -n: a number of pictures from 1 on is needed");
	if (delay && (parse_duration_ms(delay, &delay_ms) || delay_ms < 100 || delay_ms > 3600000))
		return cli_usage(&cmd_top, "top -d: a time from 100ms to 1h is needed");
	if (cli_has(a, OPT_ONCE))
		n = 1;
	if (!n && !c->tty && !c->json)
		n = 1; /* nobody looks on: a picture, not a film */
	code = remote_open(c, &cl);
	if (code)
		return code;
	keys_begin();
	code = pictures(c, cl, n, delay_ms);
	keys_end();
	return code;
}

static const struct cli_option options[] = {
	{OPT_ONCE, "once", NULL, "one picture; without a terminal that is so anyway, but not with --json"},
	{'n', "count", "N", "so many pictures"},
	{'d', "delay", "TIME", "time between two of them, and what each is about; 1s unless given"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_top = {
	.name = "top",
	.usage = "top [--once] [-n N] [-d TIME] [--json]",
	.help = "processor, memory, connections and bytes of all apps, again every second",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
