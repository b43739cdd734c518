/* The files with several names that were sent already. */
#ifndef SANDKEEP_HARD_LINKS_H
#define SANDKEEP_HARD_LINKS_H

#include "../common/text.h"

struct file_identity {
  u64 device, inode;
};

/* The name under which the file was noted before. Null: it was not, and has this name now. */
const char *note_name(struct file_identity file, const char *name);

#endif
