/*
 * The sandbox in its machine: process 1 of it, ../init, in namespaces of processes, mounts and control groups. So the
 * sandbox is as on other engines, its processes do not reach the one that has the ports, and the count of processes
 * that were killed for lack of memory is where ../common/oom.h looks.
 */
#ifndef SANDKEEP_SANDBOX_H
#define SANDKEEP_SANDBOX_H

#define STREAMS 2

struct sandbox {
  int process;
  int output[STREAMS]; /* of the command: read ends */
  int record;          /* the end of the command, as text (../init/record.h): a read end */
  int failure;         /* why it could not start: a read end */
};

/* Starts it from the boot configuration. Gives up where that fails here. */
struct sandbox start_sandbox(void);

#endif
