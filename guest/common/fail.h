/* The last words of a program that the service started. */
#ifndef SANDKEEP_FAIL_H
#define SANDKEEP_FAIL_H

#include "text.h"

#define EXIT_NOT_STARTED 125

/* Of the program, for its messages. It sets the name first. */
extern const char *program_name;

/* Writes "name: cannot what: …" to the error output, and exits. `error` is a negative errno. */
__attribute__((noreturn)) void fail(const char *what, long error);

/* Fails where the result of a system call is an error. */
void check(const char *what, long result);

/* A number of up to 32 bits from an argument. */
long parse(const char *digits);

#endif
