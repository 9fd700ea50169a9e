/* Scope-exit cleanup: the attribute frees what the scope owns, TAKE_* moves ownership out of it. */
#pragma once
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_(void *p)
{
	free(*(void **)p);
}
static inline void cleanup_fd_(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}
static inline void cleanup_file_(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}
static inline void cleanup_dir_(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}
#define CLEANUP(fn)  __attribute__((cleanup(fn)))
#define CLEANUP_FREE CLEANUP(cleanup_free_)
#define CLEANUP_FD   CLEANUP(cleanup_fd_) /* initialise to -1 */
#define CLEANUP_FILE CLEANUP(cleanup_file_)
#define CLEANUP_DIR  CLEANUP(cleanup_dir_)

/* Move a pointer or an fd out of a cleanup variable; the variable is left NULL or -1. */
#define TAKE_PTR(p)                                                                                          \
	({                                                                                                   \
		__typeof__(p) *take_pp_ = &(p);                                                              \
		__typeof__(p) take_v_ = *take_pp_;                                                           \
		*take_pp_ = NULL;                                                                            \
		take_v_;                                                                                     \
	})
#define TAKE_FD(fd)                                                                                          \
	({                                                                                                   \
		int *take_pp_ = &(fd);                                                                       \
		int take_v_ = *take_pp_;                                                                     \
		*take_pp_ = -1;                                                                              \
		take_v_;                                                                                     \
	})

#define ELEMENTS(a)              (sizeof(a) / sizeof((a)[0]))
#define PRINTF_LIKE(fmt, args)   __attribute__((format(printf, fmt, args)))
#define container_of(p, type, m) ((type *)(void *)((char *)(p) - __builtin_offsetof(type, m)))
