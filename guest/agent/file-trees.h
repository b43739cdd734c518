/* Operations on several files, or on the whole of one. All but make_directories may take long, and run in a child
   process. */
#ifndef SANDKEEP_FILE_TREES_H
#define SANDKEEP_FILE_TREES_H

#include "../common/directories.h"

/* These return 0, or a negative errno. */

/* Makes a directory, and those above it. `path` is changed meanwhile. */
long make_directories(char *path, int has_mode, u32 mode);

/* A copy belongs to the user of the agent, so it is never set-uid. The files stay open: the process ends after it. */
long copy_file(const char *from, const char *to);

#endif
