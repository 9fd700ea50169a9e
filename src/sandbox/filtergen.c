/* Prints the filters of seccomp_rules.c as C, for seccomp.c. Runs once, when the project is built. */
#include "sandbox/seccomp.h"
#include <stdio.h>
#include <stdlib.h>

static int print_filter(unsigned variant)
{
	CLEANUP_ERR struct err *e = NULL;
	struct sock_fprog f;

	if (filter_build(variant, &f, &e) < 0) {
		(void)fprintf(stderr, "filtergen: %s\n", err_msg(e));
		return -1;
	}
	(void)printf("static const struct sock_filter filter_%u[] = {\n", variant);
	for (unsigned i = 0; i < f.len; i++)
		(void)printf("\t{0x%x, %u, %u, 0x%x},\n", f.filter[i].code, f.filter[i].jt, f.filter[i].jf,
			     f.filter[i].k);
	(void)printf("};\n");
	free(f.filter);
	return 0;
}

int main(void)
{
	(void)printf("/* Made by filtergen from seccomp_rules.c. */\n");
	for (unsigned v = 0; v < FILTER_VARIANTS; v++)
		if (print_filter(v) < 0)
			return 1;
	/* the kernel's type has no const */
	(void)printf("static const struct sock_fprog filters[] = {\n");
	for (unsigned v = 0; v < FILTER_VARIANTS; v++)
		(void)printf("\t{sizeof filter_%u / sizeof *filter_%u, (struct sock_filter "
			     "*)(uintptr_t)filter_%u},\n",
			     v, v, v);
	(void)printf("};\n");
	return fflush(stdout) || ferror(stdout);
}
