/* System calls, and the functions that the compiler expects of a library. */
#ifndef SANDKEEP_KERNEL_H
#define SANDKEEP_KERNEL_H

#include <asm/errno.h>
#include <asm/signal.h>
#include <asm/unistd.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

/* The kernel takes up to six arguments, and returns a negative errno on failure. */
long call6(long number, long a, long b, long c, long d, long e, long f);

#define call(number, a, b, c, d) call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

__attribute__((noreturn)) void leave(int code);

/* The compiler makes calls to these two. */
void *memcpy(void *to, const void *from, u64 n);
void *memset(void *to, int value, u64 n);

#endif
