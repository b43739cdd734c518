#include "text.h"

typedef u64 __attribute__((may_alias, aligned(1))) Word;

/* By words: all input and output of commands passes through here, in pieces of up to 256 KiB. */
void move_down(void *to, const void *from, u64 n) {
  u64 i = 0;
  for (; i + sizeof(Word) <= n; i += sizeof(Word)) *(Word *)((u8 *)to + i) = *(const Word *)((const u8 *)from + i);
  for (; i < n; i++) ((u8 *)to)[i] = ((const u8 *)from)[i];
}

u64 length(const char *text) {
  u64 n = 0;
  while (text[n]) n++;
  return n;
}

int same(const char *a, const char *b, u64 n) {
  for (u64 i = 0; i < n; i++)
    if (a[i] != b[i]) return 0;
  return 1;
}

void copy_text(char *to, u64 room, const char *from, u64 n) {
  if (n >= room) n = room - 1;
  memcpy(to, from, n);
  to[n] = 0;
}

char *put_number(char *to, u64 value) {
  char digits[24];
  int n = 0;
  do digits[n++] = (char)('0' + value % 10);
  while (value /= 10);
  while (n > 0) *to++ = digits[--n];
  return to;
}
