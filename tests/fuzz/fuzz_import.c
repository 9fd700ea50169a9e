/*
 * Another program's file as a unit. The first byte chooses the kind (or that it is seen from the content). Beyond
 * memory errors: what comes out is a unit without errors that runs in a jail, without hooks and preparation, and
 * has no byte that a terminal would act on (tabs may stay); what is refused has a reason.
 */
#include "sandbox/rules.h"
#include "unit/import.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
	if (!truth)
		abort();
}

static void check_unit(const struct unit_dirs *d, const struct import_result *r)
{
	CLEANUP_FREE char *name = xasprintf("%s%s", r->name, str_ends(r->name, "@") ? "i" : "");
	struct unit_problems p = {0};
	struct unit *u = unit_parse_buffer(d, name, "t.app", r->text, strlen(r->text), &p);

	require(u && p.n == 0);
	require(u->enforce == UNIT_ENFORCE_REQUIRED && u->backend == UNIT_BACKEND_AUTO);
	require(!u->hooks.n && !u->hooks_unsafe && !u->prepare_exec.n && !u->secret.n);
	require(!u->nested_sandbox && u->sni_match);
	unit_free(u);
	for (const char *s = r->text; *s; s++)
		require(*s == '\n' || *s == '\t' || ((unsigned char)*s >= 0x20 && *s != 0x7f));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char home[] = "/home/some body", dir[] = "/x/sbxsv", user[] = "u";
	static char node[] = "node", odd[] = "a'b $%", *command[] = {node, odd, NULL};
	struct unit_dirs d = {
		.config = dir,
		.apps = dir,
		.state = dir,
		.runtime = dir,
		.profiles = dir,
		.home = home,
		.user = user,
		.uid = 1000,
		.min_port = 1024,
	};
	CLEANUP_FREE char *text = NULL;
	CLEANUP_ERR struct err *e = NULL;
	enum import_kind kind = IMPORT_MANIFEST;
	struct import_result got = {0};
	struct import_request r = {
		.dirs = &d, .shown = "f\n.x", .file_name = "web.service", .file_dir = "/srv/some app"};

	if (!size)
		return 0;
	rules_wire_checks(&d);
	text = xstrndup((const char *)data + 1, size - 1);
	r.text = text;
	r.len = size - 1;
	if (data[0] & 8)
		r.command = command;
	if (data[0] & 16)
		r.name = "given";
	if ((data[0] & 7) < IMPORT_KINDS)
		kind = (enum import_kind)(data[0] & 7);
	else if (unit_import_recognise(r.text, r.len, &kind, &e) < 0) {
		require(e != NULL && *err_msg(e));
		return 0;
	}
	if (unit_import(&r, kind, &got, &e) == 0)
		check_unit(&d, &got);
	else
		require(e != NULL && *err_msg(e));
	unit_import_finish(&got);
	return 0;
}
