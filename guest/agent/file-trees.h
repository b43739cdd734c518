/* Operations on several files, or on the whole of one. All but make_directories may take long, and run in a child
   process. */
#ifndef SANDKEEP_FILE_TREES_H
#define SANDKEEP_FILE_TREES_H

#include "../common/text.h"

/* An entry of getdents64. */
typedef struct {
  u64 inode, offset;
  u16 size;
  u8 kind;
  char name[];
} Directory_Entry;

/* Whether a name is "." or "..". */
int is_dots(const char *name);

/* These return 0, or a negative errno. */

/* Makes a directory, and those above it. `path` is changed meanwhile. */
long make_directories(char *path, int has_mode, u32 mode);

/* Removes a directory and everything below it, each part by its parent's descriptor. `depth`: 0. */
long remove_tree(int parent, const char *name, int depth);

/* A copy belongs to the user of the agent, so it is never set-uid. The files stay open: the process ends after it. */
long copy_file(const char *from, const char *to);

#endif
