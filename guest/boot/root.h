/*
 * The root of the sandbox: the image, which several sandboxes share, below the disk of this one. Both stay mounted at
 * /base and /disk for the end of the machine.
 */
#ifndef SANDKEEP_ROOT_H
#define SANDKEEP_ROOT_H

#define ROOT "/root"

/* Mounts /proc, /sys and /dev of process 1 of the machine, which come before anything else. */
void mount_kernel_files(void);

/* Mounts the root of the sandbox at ROOT. */
void mount_root(void);

/* After the sandbox has ended: its disk is complete when this returns. */
void unmount_root(void);

#endif
