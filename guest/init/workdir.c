#include "workdir.h"
#include "../common/kernel.h"
#include <linux/fcntl.h>

struct workdir workdir;

void make_workdir(void) {
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

long enter_workdir(void) {
  long failed = workdir.path ? call(__NR_chdir, workdir.path, 0, 0, 0) : 0;
  return failed == -ENOENT && workdir.unmade < 0 ? workdir.unmade : failed;
}
