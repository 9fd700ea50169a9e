/* portbench PORT sock_diag|lsof: finds the holders of a port once, prints microseconds and the pid. */
#include "base/clock.h"
#include "base/parse.h"
#include "ports/ports.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct port_holders h = {0};
	CLEANUP_ERR struct err *e = NULL;
	uint16_t port;
	int64_t begun;

	if (argc != 3 || parse_port(argv[1], &port) < 0)
		return 2;
	begun = clk_mono_us();
	if (ports_find(port, strcmp(argv[2], "lsof") == 0 ? PORTS_LSOF : PORTS_SOCK_DIAG, &h, &e) < 0) {
		(void)fprintf(stderr, "portbench: %s\n", err_msg(e));
		return 1;
	}
	(void)printf("%lld %d\n", (long long)(clk_mono_us() - begun), h.n ? (int)h.v[0].pid : 0);
	port_holders_finish(&h);
	return 0;
}
