/* The files and directories that clients have open. */
#ifndef SANDKEEP_HANDLES_H
#define SANDKEEP_HANDLES_H

#include "tables.h"

typedef struct {
  int fd; /* -1 when free */
  u32 owner;
  int is_directory;
} Handle;

extern Handle handles[HANDLES];

/* Once, at the start: every place is free. */
void free_handles(void);

/* Takes a descriptor over. Returns the number of its handle, or a negative errno after closing it. */
long keep_handle(int fd, u32 owner, int is_directory);

/* Returns null for a number that is not one of this owner's. */
Handle *find_handle(u32 number, u32 owner);

void close_handles(u32 owner);

#endif
