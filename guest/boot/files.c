#include "files.h"
#include "../common/directories.h"
#include "../protocol.h"
#include <linux/fcntl.h>
#include <stdarg.h>

long read_text(const char *path, char *to, u64 room) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return fd;
  long got = call(__NR_read, fd, to, room - 1, 0);
  call(__NR_close, fd, 0, 0, 0);
  if (got < 0) return got;
  if (got > 0 && to[got - 1] == '\n') got--;
  to[got] = 0;
  return got;
}

long write_text(const char *path, const char *text) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  if (fd < 0) return fd;
  long done = call(__NR_write, fd, text, length(text), 0);
  call(__NR_close, fd, 0, 0, 0);
  return done < 0 ? done : 0;
}

char *join(char *to, u64 room, ...) {
  va_list parts;
  u64 n = 0;
  va_start(parts, room);
  for (const char *part; (part = va_arg(parts, const char *));)
    while (*part && n < room - 1) to[n++] = *part++;
  va_end(parts);
  to[n] = 0;
  return to;
}

long make_directories(const char *path) {
  char part[LIMIT_PATH];
  u64 n = 0;
  long failed = 0;
  do {
    part[n++] = *path++;
    if (*path && *path != '/') continue;
    part[n] = 0;
    failed = call(__NR_mkdirat, AT_FDCWD, part, 0755, 0);
  } while (*path && n < sizeof part - 1);
  return failed == -EEXIST ? 0 : failed;
}

long each_entry(const char *path, long (*visit)(const char *name, void *context), void *context) {
  u64 buffer[512];
  long got, result = 0;
  long directory = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (directory < 0) return directory;
  while (!result && (got = call(__NR_getdents64, directory, buffer, sizeof buffer, 0)) > 0)
    for (long at = 0; at < got && !result;) {
      Directory_Entry *entry = (Directory_Entry *)((u8 *)buffer + at);
      if (entry->name[0] != '.') result = visit(entry->name, context);
      at += entry->size;
    }
  call(__NR_close, directory, 0, 0, 0);
  return result;
}

long create_file(const char *path, u32 mode, const u8 *content, u64 n) {
  long file = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return file;
  long failed = 0;
  for (u64 done = 0; failed >= 0 && done < n; done += (u64)failed)
    failed = call(__NR_write, file, content + done, n - done, 0);
  if (failed >= 0) failed = call(__NR_fchmod, file, mode, 0, 0);
  call(__NR_close, file, 0, 0, 0);
  return failed < 0 ? failed : 0;
}

long make_parents(const char *path) {
  char parent[LIMIT_PATH];
  u64 n = length(path);
  while (n > 0 && path[n] != '/') n--;
  if (n == 0) return 0;
  copy_text(parent, sizeof parent, path, n);
  return make_directories(parent);
}
