/* Shared by order.c and wait.c only. */
#pragma once
#include "sup/app.h"
#include "unit/order.h"

struct order_world {
	bool fresh; /* made of the definitions as they are */
	struct app **apps;
	size_t n;
	struct order_edge *edges;
	size_t n_edges, cap_edges;
	struct order order;
	/* apps whose state or `stuck` changed */
	struct app **moved;
	size_t n_moved, cap_moved;
	bool telling;
};
/* Made anew if it is not fresh. */
struct order_world *order_world(struct sup *s);
struct app *order_app(const struct order_world *w, const char *name); /* NULL: none */

/* wait.c */
bool wait_look(struct app *a); /* it must wait; sets reason, hint and `stuck` */
