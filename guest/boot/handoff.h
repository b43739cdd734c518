/*
 * A program of the image as process 1 of the sandbox, such as systemd. ../init then runs beside it: it is a child of
 * this process that has entered the namespaces of the sandbox, so that the program neither reaps nor restarts it. Here
 * its end is noticed, and it is started again: the agents and the service depend on it.
 */
#ifndef SANDKEEP_HANDOFF_H
#define SANDKEEP_HANDOFF_H

#include "sandbox.h"

/* Whether a program of the image becomes process 1. */
int is_handed_off(void);

/* The listener of agents. This process has it from before the program runs until the end: no other one of the sandbox
   can get the name, and pose as the agent. */
long open_listener(void);

/* Becomes it. To be called by process 1 of the sandbox, in its root. Gives up where that fails. */
__attribute__((noreturn)) void become_handed_off(void);

/* Starts ../init in the sandbox, whose process 1 runs its program. `has_command`: the first one starts the command. */
void start_beside(struct sandbox *sandbox, int has_command);

/* Whether the process is ../init beside process 1, which has ended. The end of a sandbox that ends with its command
   begins then. */
int end_beside(struct sandbox *sandbox, long process, int status);

/* To be called in each round, for what is due by time. Returns the milliseconds until the next one. -1: nothing is. */
int tick_beside(struct sandbox *sandbox);

/* The signal with which process 1 ends the sandbox in order. */
int stop_signal(const struct sandbox *sandbox);

/* The exit code of the run, from the status of process 1. */
int handed_off_code(int status);

/* Closes what ../init would have got, so that the output of the sandbox has an end. */
void close_given(struct sandbox *sandbox);

#endif
