#include "bytes.h"

void put(u8 *to, u64 value, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (u8)(value >> (8 * i));
}

u64 take(Reader *from, int bytes) {
  u64 value = 0;
  if (from->end - from->at < bytes) {
    from->bad = 1;
    return 0;
  }
  for (int i = 0; i < bytes; i++) value |= (u64)*from->at++ << (8 * i);
  return value;
}

char *take_text(Reader *from) {
  char *text = (char *)from->at;
  while (from->at < from->end)
    if (*from->at++ == 0) return text;
  from->bad = 1;
  return "";
}
