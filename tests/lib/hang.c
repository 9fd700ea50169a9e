/* proxy_hang: sbxsv-proxy with a parser that never ends on some bytes, and a watch that looks fifty times as often. */
#include "proxy/request.h"
#include <string.h>
#include <sys/time.h>

enum parse __real_request_parse(struct request *r, const char *buf, size_t len);
enum parse __wrap_request_parse(struct request *r, const char *buf, size_t len);
int __real_setitimer(int which, const struct itimerval *value, struct itimerval *old);
int __wrap_setitimer(int which, const struct itimerval *value, struct itimerval *old);

enum parse __wrap_request_parse(struct request *r, const char *buf, size_t len)
{
	volatile bool hang = len >= 4 && memcmp(buf, "HANG", 4) == 0;

	while (hang)
		;
	return __real_request_parse(r, buf, len);
}

int __wrap_setitimer(int which, const struct itimerval *value, struct itimerval *old)
{
	const struct timeval often = {.tv_usec = 100000};
	const struct itimerval every = {often, often};

	return __real_setitimer(which, value ? &every : value, old);
}
