/* The files of the machine that a monitor can open by a path. */
#ifndef SANDKEEP_FILES_H
#define SANDKEEP_FILES_H

/*
 * From now on this process opens programs, libraries, /proc, the devices of a monitor, and the files of the descriptors
 * below `inherited`. A monitor opens any path that a disk image names, also when its header changes after the check of
 * the service. The kernel enforces this with Landlock (Linux 5.13). Elsewhere a path reaches the files that every user
 * of the machine may read.
 */
void restrict_files(long inherited);

#endif
