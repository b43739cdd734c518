#include "file-trees.h"
#include "file-attributes.h"
#include <linux/fcntl.h>

long make_directories(char *path, int has_mode, u32 mode) {
  struct stat_layout record;
  long failed = 0;
  for (char *c = path + 1; path[0]; c++) {
    char was = *c;
    if (was && was != '/') continue;
    *c = 0;
    failed = call(__NR_mkdirat, AT_FDCWD, path, 0777, 0);
    *c = was;
    if (failed < 0 && failed != -EEXIST && failed != -EROFS) return failed;
    if (!was) break;
  }
  long found = record_of(AT_FDCWD, path, 0, &record);
  if (found < 0) return failed < 0 && failed != -EEXIST ? failed : found;
  if ((record.mode & S_KIND) != S_DIR) return -ENOTDIR;
  if (has_mode) return call(__NR_fchmodat, AT_FDCWD, path, mode & SETTABLE, 0);
  return 0;
}

long copy_file(const char *from, const char *to) {
  int in = (int)call(__NR_openat, AT_FDCWD, from, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (in < 0) return in;
  struct statx source, target;
  long failed = status_of(in, "", AT_EMPTY_PATH, &source);
  if (failed < 0) return failed;
  if ((source.stx_mode & S_KIND) == S_DIR) return -EISDIR;
  if ((source.stx_mode & S_KIND) != S_REGULAR) return -EINVAL;
  long flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int out = (int)call(__NR_openat, AT_FDCWD, to, flags, source.stx_mode & PERMISSIONS);
  if (out < 0) return out;
  if ((failed = status_of(out, "", AT_EMPTY_PATH, &target)) < 0) return failed;
  if (same_file(&target, &source)) return -EINVAL;
  if ((target.stx_mode & S_KIND) != S_REGULAR) return -EINVAL;
  if ((failed = call(__NR_ftruncate, out, 0, 0, 0)) < 0) return failed;
  call(__NR_fchmod, out, source.stx_mode & PERMISSIONS, 0, 0);
  static u8 data[262144];
  for (;;) {
    long got = call(__NR_read, in, data, sizeof data, 0);
    if (got <= 0) return got;
    for (long at = 0; at < got;) {
      long done = call(__NR_write, out, data + at, got - at, 0);
      if (done <= 0) return done < 0 ? done : -EIO;
      at += done;
    }
  }
}
