/*
 * Commands. A command has a session and a process group of its own, and pipes or a terminal. The child process reports
 * the step that failed by a pipe, which closes when the program starts.
 *
 * A command is over when it has ended and its output has. Processes that it left behind may hold the output open: they
 * get a second, and the agent sends what the pipes hold by then.
 */
#ifndef SANDKEEP_COMMANDS_H
#define SANDKEEP_COMMANDS_H

#include "channels.h"

/* Keeps the directory and the home of this process, for commands that name none. Once, at the start. */
void keep_defaults(char **environment);

void handle_exec(u32 id, Reader *from);

/* The child has reported: `error` is a positive errno, or 0 when the program runs. */
void report_start(Channel *c, long error, u8 step);

/* Ends the channel of a command that is over. */
void finish_if_over(Channel *c);

/* Whether the command has ended, and its output may not have. */
int lingers(const Channel *c);

/* Ends the output of a command that has ended, when processes that it left behind hold it open. */
void end_lingering(Channel *c, int *fd, int has_output);

/* Collects the processes that have ended. */
void reap(void);

#endif
