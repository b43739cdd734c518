/* The entries of directories, and their removal. */
#ifndef SANDKEEP_DIRECTORIES_H
#define SANDKEEP_DIRECTORIES_H

#include "text.h"

/* An entry of getdents64. */
typedef struct {
  u64 inode, offset;
  u16 size;
  u8 kind;
  char name[];
} Directory_Entry;

/* Whether a name is "." or "..". */
int is_dots(const char *name);

/* Removes a directory and everything below it, each part by its parent's descriptor. `depth`: 0. Returns 0, or a
   negative errno. */
long remove_tree(int parent, const char *name, int depth);

#endif
