/* Shared by dns.c and dns_tcp.c. */
#pragma once
#include "proxy/dns.h"
#include "proxy/dnsanswer.h"

#define DNS_RECENT 8
struct dns_recent { /* a refused lookup that was told */
	char host[HOST_MAX];
	unsigned types, again; /* asked for so far, and a second time */
	int64_t at_ms;
};

struct udp;
struct dns_listener;
struct dns {
	struct app *app;
	struct names *names;
	struct udp *udp;
	struct dns_listener *tcp;
	struct loop_timer window; /* of the rate */
	size_t spent, budget;     /* questions in this window */
	struct dns_recent recent[DNS_RECENT];
	unsigned next_recent;
};

/* The answer to one message, counted and reported; 0: none. `out` of DNS_ANSWER_MAX bytes. */
size_t dns_reply(struct dns *d, const uint8_t *msg, size_t len, bool udp, uint8_t *out);
/* n questions were taken. False: enough for this window, everything was paused. */
bool dns_spend(struct dns *d, size_t n);
void dns_report(struct dns *d, const struct dns_denial *denial);
void dns_tcp_run(struct dns *d, bool on);
void dns_tcp_destroy(struct dns *d);
