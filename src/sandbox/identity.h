/* Who an app runs as: the user of sbxsvd; under root, User= or the default user, and never uid 0. */
#pragma once
#include "sandbox/plan.h"

int identity_find(const struct unit *u, const struct unit_dirs *d, const struct conf *c,
		  struct plan_user *ret, struct err **e);
void identity_finish(struct plan_user *u);
/* The account that sbxsv-proxy runs as under root; 0, or -1 with *e. */
int identity_of_proxy(const struct conf *c, uid_t *ret_uid, gid_t *ret_gid, struct err **e);
