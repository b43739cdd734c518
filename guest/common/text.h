/* Bytes and texts in memory. */
#ifndef SANDKEEP_TEXT_H
#define SANDKEEP_TEXT_H

#include "kernel.h"

/* Copies to another place, or to a lower address that overlaps. */
void move_down(void *to, const void *from, u64 n);

u64 length(const char *text);

/* Whether the first `n` bytes are the same. */
int same(const char *a, const char *b, u64 n);

/* Copies so much of `from` as `room` holds with a NUL, which it adds. */
void copy_text(char *to, u64 room, const char *from, u64 n);

/* Writes digits without a NUL. Returns their end. */
char *put_number(char *to, u64 value);

#endif
