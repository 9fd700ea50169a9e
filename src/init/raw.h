/*
 * System calls without a libc, for x86-64 and aarch64: a program of a few pages, which costs an idle jail
 * next to nothing and is executed in a fraction of the time. Elsewhere the same calls go through a static
 * libc.
 *
 * Everything returns what the kernel returns: a negative errno is an error.
 */
#pragma once
#include <asm/unistd.h>
#include <stddef.h>

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(INIT_WITH_LIBC)
#define INIT_FREESTANDING 1

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
#ifdef __x86_64__
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#else
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#endif
}

/* The kernel enters here with argc, argv and the environment on the stack. */
__asm__(".text\n"
	".globl _start\n"
	".type _start, %function\n"
	"_start:\n"
#ifdef __x86_64__
	"	xorl %ebp, %ebp\n"
	"	movq %rsp, %rdi\n"
	"	andq $-16, %rsp\n"
	"	call init_start\n"
#else
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	mov x0, sp\n"
	"	bl init_start\n"
#endif
	".size _start, . - _start\n");

/* The compiler may call these for initialisers and copies, whatever it is told. */
void *memset(void *p, int c, size_t n);
void *memset(void *p, int c, size_t n)
{
	volatile unsigned char *b = p;

	while (n--)
		*b++ = (unsigned char)c;
	return p;
}
void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	volatile unsigned char *t = to;
	const unsigned char *f = from;

	while (n--)
		*t++ = *f++;
	return to;
}

#else
#define INIT_FREESTANDING 0
#include <errno.h>
#include <unistd.h>

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	long r = syscall(nr, a, b, c, d, e, f);

	return r < 0 ? -errno : r;
}
#endif

#define RAW_PICK(a1, a2, a3, a4, a5, a6, a7, n, ...) n
#define raw(...)                                     RAW_PICK(__VA_ARGS__, RAW6, RAW5, RAW4, RAW3, RAW2, RAW1, RAW0, 0)(__VA_ARGS__)
#define RAW0(nr)                                     raw6(nr, 0, 0, 0, 0, 0, 0)
#define RAW1(nr, a)                                  raw6(nr, (long)(a), 0, 0, 0, 0, 0)
#define RAW2(nr, a, b)                               raw6(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW3(nr, a, b, c)                            raw6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(nr, a, b, c, d)                         raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RAW5(nr, a, b, c, d, e)                      raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define RAW6(nr, a, b, c, d, e, f)                   raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
