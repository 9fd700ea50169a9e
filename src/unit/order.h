/*
 * Which app comes after which: After= and Requires= as a graph. Pure: numbers in, numbers out; no recursion, time and
 * memory linear in nodes and edges, so that a directory of any size costs its reading and no stack.
 */
#pragma once
#include "unit/unit.h"

enum order_kind { ORDER_AFTER, ORDER_REQUIRES };
struct order_edge { /* `from` starts after `to` */
	uint32_t from, to;
	enum order_kind kind;
};
struct order {
	size_t n;
	uint32_t *sequence; /* all nodes in an order to start them in; those of one circle are neighbours */
	uint32_t *rank;     /* where a node is in `sequence` */
	uint32_t *circle; /* nodes that reach each other have the same number, all others one of their own */
	bool *circular;   /* it is in a circle */
	/* edges sorted by `from` (edges_out[i] to edges_out[i + 1]), and their numbers sorted by `to` */
	const struct order_edge *edges;
	size_t n_edges;
	uint32_t *out, *out_at, *in, *in_at;
};
/* The edges stay the caller's and must outlive it. An edge from a node to itself is no circle. */
void order_make(struct order *ret, size_t n, const struct order_edge *edges, size_t n_edges);
void order_finish(struct order *o);
/* A shortest circle through a circular node: numbers of edges, the first one leaves the node. Returns how many. */
size_t order_circle(const struct order *o, uint32_t node, uint32_t **ret);

/* The position of a name in names sorted by strcmp(3); n when there is none. `name_at` gives the name at i. */
size_t order_find(const void *list, size_t n, const char *(*name_at)(const void *list, size_t i),
		  const char *name);

/* A problem, at the line of the unit, for each app of the scan that is in a circle; its `unit` moves to `circular`. */
void unit_order_check(struct unit_scan *scan);
/* The same for one unit in place of that of its name, or beside them all: `sbxsv check FILE`. */
void unit_order_check_one(const struct unit *u, const struct unit_scan *scan, struct unit_problems *p);
/* "notes.app:3: Requires=bd waits: there is no app bd (did you mean db?)": what is no error, but hardly meant. */
void unit_order_notes(const struct unit *u, const struct unit_scan *scan, struct strv *ret);
