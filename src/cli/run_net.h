/* The network of one instance of `sbxsv run`: a proxy of its own, with the rules of its unit and those given at run time. */
#pragma once
#include "cli/cli.h"
#include "net/net.h"
#include "net/proxyctl.h"
#include "sandbox/backend.h"
#include "sandbox/rules.h"

struct run_net {
	const struct unit *unit; /* whose rules are in force */
	struct proxyctl *proxy;  /* NULL: its jail has no way out */
	struct net_plan plan;
	uint16_t ports[NET_PORTS_MAX], loopback[NET_LOOPBACK_MAX];
	struct rules_extra *extra; /* rules given at run time, texts owned */
	size_t n_extra;
};
/* Replaces the rules given at run time by those of a message of the supervisor: objects with key, text, origin. */
void run_net_take(struct run_net *n, const struct js *rules);
/* The supervisor that gave them is gone: what they granted is gone with it, what they refused stays refused. */
void run_net_keep_denials(struct run_net *n);
bool run_net_reaches_out(const struct run_net *n);
/* Before the launch. `scan`: for Loopback=app:NAME. The hooks outlive it. */
int run_net_start(struct run_net *n, struct loop *l, const struct conf *conf, const struct unit_scan *scan,
		  const struct proxyctl_hooks *hooks, struct err **e);
int run_net_inside(void *net_plan, struct launch_sockets *out, struct err **e); /* hook of the launch */
void run_net_attach(struct run_net *n, struct launch_done *done);
int run_net_apply(struct run_net *n, struct err **e); /* unit or extra changed */
void run_net_finish(struct run_net *n);
