/*
 * The record of the end of the command, for the service and for the log.
 *
 * Process 1 keeps it in its own argument --record, which everybody may read in /proc/1/cmdline, and which the service
 * also reads from outside. It is on no disk and takes no memory of others. No process of the sandbox can change it:
 * PR_SET_DUMPABLE closes the memory of process 1 to them.
 */
#ifndef SANDKEEP_RECORD_H
#define SANDKEEP_RECORD_H

/* The text of the argument, LIMIT_RECORD hyphens until the command has ended. Null: nobody asked for a record. */
extern char *record;

/* A descriptor that gets the text too, without the hyphens. -1: none. */
extern long record_copy;

/* The count of oom.h at the start of the command. */
extern long kills_before;

/* Records the end of the command, whose output comes first. `status`: of wait4. */
void record_end(int status, int until_exit);

#endif
