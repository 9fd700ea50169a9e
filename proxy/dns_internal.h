/* Shared by dns.c and dns_tcp.c. */
#pragma once
#include "proxy/dns.h"
#include "proxy/dnsanswer.h"

struct udp;
struct dns_listener;
struct dns {
	struct app *app;
	struct names *names;
	struct udp *udp;
	struct dns_listener *tcp;
	struct loop_timer window; /* of the rate */
	size_t spent, budget;     /* questions in this window */
};

/* The answer to one message, counted and reported; 0: none. `out` of DNS_ANSWER_MAX bytes. */
size_t dns_reply(struct dns *d, const uint8_t *msg, size_t len, bool udp, uint8_t *out);
/* n questions were taken. False: enough for this window, everything was paused. */
bool dns_spend(struct dns *d, size_t n);
void dns_tcp_run(struct dns *d, bool on);
void dns_tcp_destroy(struct dns *d);
