/*
 * The baseline filter, ready to be installed by a plain seccomp(2) in the child of a launch.
 *
 * filtergen made it when the project was built, by the rules of seccomp_rules.c: libseccomp needs half a
 * millisecond for that, and a process that does not use it starts faster, too. What was built for another
 * machine (a cross compilation cannot run filtergen) builds it at the first launch instead. A unit test
 * compares the two.
 */
#include "sandbox/seccomp.h"
#include "config.h"
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#if FILTERS_BUILT
#include "sandbox/filters.gen.h"
#endif

const struct sock_fprog *filter_get(unsigned variant, struct err **e)
{
#if FILTERS_BUILT
	(void)e;
	return &filters[variant];
#else
	static struct sock_fprog built[FILTER_VARIANTS];

	if (!built[variant].filter && filter_build(variant, &built[variant], e) < 0)
		return NULL;
	return &built[variant];
#endif
}

int filter_install(const struct sock_fprog *f)
{
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, f);
}
