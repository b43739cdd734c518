#include "volumes.h"
#include "../common/directories.h"
#include <linux/fcntl.h>

#define ANY_USER 0777

/* Whether a directory has nothing but the directory that some file systems begin with. */
static int is_empty(long directory) {
  u64 buffer[512];
  long got;
  while ((got = call(__NR_getdents64, directory, buffer, sizeof buffer, 0)) > 0)
    for (long at = 0; at < got;) {
      Directory_Entry *entry = (Directory_Entry *)((u8 *)buffer + at);
      if (!is_dots(entry->name) && !same(entry->name, "lost+found", sizeof "lost+found")) return 0;
      at += entry->size;
    }
  return got == 0;
}

void open_volume(const char *path) {
  long directory = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (directory < 0) return;
  if (is_empty(directory)) call(__NR_fchmod, directory, ANY_USER, 0, 0);
  call(__NR_close, directory, 0, 0, 0);
}
