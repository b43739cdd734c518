/* The frames that the agent receives: cut from its standard input, and handled in their order. */
#ifndef SANDKEEP_REQUESTS_H
#define SANDKEEP_REQUESTS_H

#include "tables.h"

/* The bytes that were read: the first `has` of them are not handled yet. */
extern struct incoming {
  u32 has;
  u8 bytes[HEADER_BYTES + FRAME_ROOM];
} incoming;

/* Reads what there is and handles each frame that is whole. Returns 0 at the end of the input, or of its sense. */
int read_frames(void);

#endif
