/* The real path of a file, without links. */
#ifndef SANDKEEP_REAL_PATH_H
#define SANDKEEP_REAL_PATH_H

#include "../common/text.h"

/* Writes a text without a NUL to `to`, which has room for two paths. The last part of `path` need not exist.
   Returns the length, or a negative errno. `path` is changed. */
long real_path(char *path, u8 *to);

#endif
