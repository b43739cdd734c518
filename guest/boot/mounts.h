/* The mounts of a sandbox: file systems of the kernel, the files of the service, and mounts of the caller. */
#ifndef SANDKEEP_MOUNTS_H
#define SANDKEEP_MOUNTS_H

/* The programs of the service, as a mount without a place. Before the root of the machine is gone. */
long open_programs(void);

/* Mounts everything. In the process that becomes process 1, whose root is that of the sandbox. */
void mount_sandbox_files(int programs);

#endif
