/*
 * The sandbox in its machine. Process 1 of it is ../init, or a program of the image, in namespaces of processes, mounts
 * and control groups. So the sandbox is as on other engines, and its processes do not reach the one that has the ports.
 * The count of processes that were killed for lack of memory is where ../common/oom.h looks.
 */
#ifndef SANDKEEP_SANDBOX_H
#define SANDKEEP_SANDBOX_H

#define STREAMS 2
/* The input, the output and the record of ../init, and the listener of agents where a program of the image is process
   1. They get the numbers from 0 on. */
#define GIVEN (STREAMS + 3)

struct sandbox {
  int process;
  int output[STREAMS]; /* of the command: read ends */
  int record;          /* the end of the command, as text (../init/record.h): a read end */
  int failure;         /* why it could not start: a read end */
  int given[GIVEN];    /* for ../init beside a program of the image; -1: it has them already */
};

/* Starts it from the boot configuration. Gives up where that fails here. */
struct sandbox start_sandbox(void);

/* Becomes ../init in the namespaces of a sandbox whose process 1 is a program of the image (handoff.h). */
__attribute__((noreturn)) void become_beside(const struct sandbox *sandbox, int mounts, int groups, int has_command);

#endif
