#include "oom.h"
#include <linux/fcntl.h>

#define UNKNOWN_KILLS -1
#define COUNTS_ROOM 1024

static int oom_counts = -1; /* the open file; -1: none */

/* The engine mounts the control group of the sandbox read-only: in version 2, or in version 1. */
void open_oom_counts(void) {
  oom_counts = -1;
  const char *files[] = {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"};
  for (int i = 0; i < 2 && oom_counts < 0; i++)
    oom_counts = (int)call(__NR_openat, AT_FDCWD, files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0);
}

long oom_kills(void) {
  static const char name[] = "oom_kill ";
  char text[COUNTS_ROOM + 1];
  long got = oom_counts < 0 ? 0 : call(__NR_pread64, oom_counts, text, COUNTS_ROOM, 0);
  if (got <= 0) return UNKNOWN_KILLS;
  text[got] = 0;
  for (char *line = text; *line;) {
    if (same(line, name, sizeof name - 1)) {
      long count = 0;
      for (line += sizeof name - 1; *line >= '0' && *line <= '9'; line++) count = count * 10 + *line - '0';
      return count;
    }
    while (*line && *line++ != '\n') continue;
  }
  return UNKNOWN_KILLS;
}

/* A shell ends with 137 when its program is killed, so the code tells of both. */
u8 oom_killed(int code, long before) {
  if (code != 128 + SIGKILL) return OOM_NO;
  long after = oom_kills();
  if (before == UNKNOWN_KILLS || after == UNKNOWN_KILLS) return OOM_UNKNOWN;
  return after > before ? OOM_YES : OOM_NO;
}
