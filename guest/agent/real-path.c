#include "real-path.h"
#include "../common/execute.h"
#include "file-attributes.h"
#include "file-trees.h"
#include <linux/fcntl.h>

/*
 * The path of an open file: a text of `to`, which has room for PATH_ROOM. The kernel also has texts that are no path,
 * as "pipe:[1]", and puts DELETED behind a file without a name. That has one all the same where it is mounted, as the
 * files of the service are.
 */
static long path_of(int fd, u8 *to) {
  static const char DELETED[] = " (deleted)";
  char own[OWN_PATH_ROOM];
  struct statx open, found;
  own_path(own, fd);
  long n = call(__NR_readlinkat, AT_FDCWD, own, to, PATH_ROOM - 1);
  if (n < 0) return n;
  long failed = status_of(fd, "", AT_EMPTY_PATH, &open);
  if (failed < 0) return failed;
  if (n == 0 || to[0] != '/') return -EINVAL;
  for (long end = n; end > 0; end -= (long)sizeof DELETED - 1) {
    to[end] = 0;
    if (status_of(AT_FDCWD, (char *)to, AT_SYMLINK_NOFOLLOW, &found) >= 0 && same_file(&open, &found)) return end;
    if (end != n || end < (long)sizeof DELETED || !same((char *)to + end - (sizeof DELETED - 1), DELETED, sizeof DELETED)) break;
  }
  return -ESTALE;
}

static long find_real_path(char *path, u8 *to) {
  int fd = (int)call(__NR_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
  char *name = 0;
  if (fd == -ENOENT) {
    u64 n = length(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    while (n > 0 && path[n - 1] != '/') n--;
    name = path + n;
    if (!name[0] || is_dots(name)) return -ENOENT;
    char parent[PATH_ROOM];
    copy_text(parent, sizeof parent, path, n);
    fd = (int)call(__NR_openat, AT_FDCWD, n > 0 ? parent : "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  }
  if (fd < 0) return fd;
  long n = path_of(fd, to);
  call(__NR_close, fd, 0, 0, 0);
  if (n < 0 || !name) return n;
  if (to[n - 1] != '/') to[n++] = '/';
  u64 rest = length(name);
  memcpy(to + n, name, rest);
  return n + (long)rest;
}

/* A file that is replaced meanwhile is another one, whose path is found by the next attempt. */
long real_path(char *path, u8 *to) {
  long n;
  int left = 16;
  do n = find_real_path(path, to);
  while (n == -ESTALE && --left > 0);
  return n;
}
