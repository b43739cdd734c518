/*
 * The report of a child process to the agent: a start that failed, or the result of work in the background. It is a
 * pipe of the child alone. A program that starts closes it (O_CLOEXEC), so a start without a report has succeeded.
 */
#ifndef SANDKEEP_REPORTS_H
#define SANDKEEP_REPORTS_H

#include "channels.h"

/* In the child: reports a step and an error, a negative errno or 0, and ends it. */
__attribute__((noreturn)) void give_up(int report, u8 step, long error);

/* In the agent: reads the report of a channel, and passes it on. */
void read_report(Channel *c);

#endif
