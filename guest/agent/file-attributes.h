/* What the kernel says of a file, and the change of it. */
#ifndef SANDKEEP_FILE_ATTRIBUTES_H
#define SANDKEEP_FILE_ATTRIBUTES_H

#include "../protocol.h"
#include <linux/stat.h>

#define S_KIND 0170000
#define S_DIR 0040000
#define S_LINK 0120000
#define S_REGULAR 0100000
#define PERMISSIONS 0777
#define SETTABLE 07777

/* These return 0, or a negative errno. `flags`: those of statx. */
long status_of(int directory, const char *path, int flags, struct statx *s);
long record_of(int directory, const char *path, int flags, struct stat_layout *to);

int same_file(const struct statx *a, const struct statx *b);

#define OWN_PATH_ROOM 32

/* Writes the path in /proc of a descriptor, which the kernel follows to the open file itself. */
void own_path(char *to, int fd);

/* Changes the file that a descriptor stands for; it may be opened by O_PATH. Returns a negative errno on failure. */
long set_attributes(int fd, int is_link, const struct attributes_layout *a);
long set_path(const char *path, int follow, const struct attributes_layout *a);

#endif
