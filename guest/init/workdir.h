/*
 * The working directory of the command. An engine makes one that is missing for root. Process 1 makes it as the user of
 * the sandbox instead, so far as the directory above lets that user.
 */
#ifndef SANDKEEP_WORKDIR_H
#define SANDKEEP_WORKDIR_H

extern struct workdir {
  char *path; /* null: the command keeps that of process 1 */
  long unmade; /* why a missing part could not be made: a negative errno */
} workdir;

/* Makes the missing parts, so far as the user may. In process 1, before its first command. */
void make_workdir(void);

/* In the child: enters the directory. Returns a negative errno on failure. */
long enter_workdir(void);

#endif
