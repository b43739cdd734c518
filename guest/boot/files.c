#include "files.h"
#include <linux/fcntl.h>
#include <stdarg.h>

struct entry {
  u64 inode;
  u64 offset;
  u16 size;
  u8 type;
  char name[];
};

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
  char part[4096];
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
      struct entry *entry = (struct entry *)((u8 *)buffer + at);
      if (entry->name[0] != '.') result = visit(entry->name, context);
      at += entry->size;
    }
  call(__NR_close, directory, 0, 0, 0);
  return result;
}
