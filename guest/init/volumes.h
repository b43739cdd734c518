/* The first use of a volume: new storage belongs to root, and any user of a sandbox may write to a volume. */
#ifndef SANDKEEP_VOLUMES_H
#define SANDKEEP_VOLUMES_H

/* Lets every user write to an empty directory. A server may forbid it: the sandbox then sees that of its own. */
void open_volume(const char *path);

#endif
