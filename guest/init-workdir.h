/*
 * The working directory of the command. An engine makes one that is missing for root. Process 1 makes it as the user of the
 * sandbox instead, so far as the directory above lets that user.
 */
#ifndef SANDKEEP_INIT_WORKDIR_H
#define SANDKEEP_INIT_WORKDIR_H

#include "kernel.h"
#include <asm/fcntl.h>
#include <linux/fcntl.h>

static struct {
  char *path; /* null: the command keeps that of process 1 */
  long unmade; /* why a missing part could not be made: a negative errno */
} workdir;

static void make_workdir(void) {
  if (!workdir.path) return;
  for (char *c = workdir.path + 1;; c++) {
    if (*c && *c != '/') continue;
    char end = *c;
    *c = 0;
    long failed = call(__NR_mkdirat, AT_FDCWD, workdir.path, 0755, 0);
    if (failed < 0 && failed != -EEXIST && !workdir.unmade) workdir.unmade = failed;
    *c = end;
    if (!end) return;
  }
}

/* Returns a negative errno on failure. */
static long enter_workdir(void) {
  long failed = workdir.path ? call(__NR_chdir, workdir.path, 0, 0, 0) : 0;
  return failed == -ENOENT && workdir.unmade < 0 ? workdir.unmade : failed;
}

#endif
