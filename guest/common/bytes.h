/* The fields of messages: readers and writers of numbers and texts. protocol.h has those of whole layouts. */
#ifndef SANDKEEP_BYTES_H
#define SANDKEEP_BYTES_H

#include "text.h"

typedef struct {
  u8 *at;
  u8 *end;
  int bad; /* a field was missing: it is 0, or an empty text */
} Reader;

/* Little-endian. */
void put(u8 *to, u64 value, int bytes);
u64 take(Reader *from, int bytes);

/* A text within the frame; it ends with NUL. */
char *take_text(Reader *from);

#endif
