#include "directories.h"
#include <linux/fcntl.h>

#define DEPTH 512 /* each level takes 4 KiB of the stack, and a descriptor */

int is_dots(const char *name) { return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])); }

long remove_tree(int parent, const char *name, int depth) {
  if (depth > DEPTH) return -ENAMETOOLONG;
  int fd = (int)call(__NR_openat, parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return fd;
  u8 entries[4096] __attribute__((aligned(8)));
  long failed = 0, got;
  int removed;
  do {
    removed = 0;
    call(__NR_lseek, fd, 0, 0, 0);
    while ((got = call(__NR_getdents64, fd, entries, sizeof entries, 0)) > 0) {
      for (long at = 0; at < got;) {
        Directory_Entry *e = (Directory_Entry *)(entries + at);
        at += e->size;
        if (is_dots(e->name)) continue;
        long done = call(__NR_unlinkat, fd, e->name, 0, 0);
        if (done == -EISDIR || done == -EPERM) done = remove_tree(fd, e->name, depth + 1);
        if (done < 0) failed = done;
        else removed = 1;
      }
    }
    if (got < 0) failed = got;
  } while (removed && failed == 0);
  call(__NR_close, fd, 0, 0, 0);
  if (failed < 0) return failed;
  return call(__NR_unlinkat, parent, name, AT_REMOVEDIR, 0);
}
