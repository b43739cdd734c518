/* The end of a boot that cannot go on. */
#ifndef SANDKEEP_FAILURE_H
#define SANDKEEP_FAILURE_H

/*
 * Says "cannot WHAT NAME: error N" to the service, and turns the machine off. In the process that becomes process 1 of
 * the sandbox it tells the parent instead. `name`: null for none. `error`: a negative errno.
 */
__attribute__((noreturn)) void give_up(const char *what, const char *name, long error);

/* As give_up, with these words. */
__attribute__((noreturn)) void end_with(const char *words);

/* Gives up where the result of a system call is an error. Returns the result. */
long need(long result, const char *what, const char *name);

/* The pipe to the parent. -1, default: this is the parent. */
extern long failure_pipe;

/* Turns the machine off, after the file systems were written. */
__attribute__((noreturn)) void power_off(void);

#endif
