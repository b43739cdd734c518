/*
 * The port `control`: lines of text in both directions, of at most LIMIT_CONTROL_LINE bytes.
 *
 * To the service:
 *   clock                asks for the time, right before the command starts
 *   ready                process 1 of the sandbox runs its program
 *   end CODE SIGNAL OOM  the command has ended, and the sandbox goes on (../init/record.h)
 *   use MICROS BYTES N   the answer to `use`: processor time, memory, processes (use.h)
 *   synced               the answer to `sync`
 *   exit CODE OOM        the sandbox has ended, and the machine turns itself off
 *   failed WORDS         the machine cannot start the sandbox, and turns itself off
 * Of the service:
 *   stop                 ends the sandbox
 *   clock NANOSECONDS    sets the clock; since 1970
 *   seed HEX             adds random bytes
 *   use                  asks for the resources that the sandbox uses
 *   sync                 writes what programs have written to the disk (sync.h)
 * Unknown lines are ignored. A service that does not read holds nothing up, and loses lines.
 */
#ifndef SANDKEEP_CONTROL_H
#define SANDKEEP_CONTROL_H

#include "../common/text.h"

/* -1: not open yet. */
extern int control_port;

/* Writes a line; null ends the parts. */
void say(const char *first, ...);

void say_failure(const char *words);

/* Reads and writes so much as the port lets it. Returns whether something was done. */
int pump_control(void);

/* Waits until the lines are written, for a short time. */
void flush_control(void);

/* Asks for the time, and waits a moment for it. */
void ask_time(void);

/* The service has asked for the end of the sandbox. */
extern int is_stop_requested;

#endif
