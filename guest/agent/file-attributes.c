#include "file-attributes.h"
#include "channels.h"
#include <linux/fcntl.h>
#include <linux/time_types.h>

#define UTIME_OMIT 0x3ffffffe

long status_of(int directory, const char *path, int flags, struct statx *s) {
  return call6(__NR_statx, directory, (long)path, flags, STATX_BASIC_STATS, (long)s, 0);
}

long record_of(int directory, const char *path, int flags, struct stat_layout *to) {
  struct statx s;
  long failed = status_of(directory, path, flags, &s);
  if (failed < 0) return failed;
  *to = (struct stat_layout){s.stx_mode, s.stx_uid, s.stx_gid, s.stx_size, (u64)s.stx_mtime.tv_sec, (u64)s.stx_atime.tv_sec};
  return 0;
}

int same_file(const struct statx *a, const struct statx *b) {
  return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

void own_path(char *to, int fd) {
  copy_text(to, OWN_PATH_ROOM, "/proc/self/fd/", 14);
  *put_number(to + 14, (u64)fd) = 0;
}

long set_attributes(int fd, int is_link, const struct attributes_layout *a) {
  char path[OWN_PATH_ROOM];
  own_path(path, fd);
  long failed = 0;
  if (a->which & (SET_UID | SET_GID)) {
    u32 uid = a->which & SET_UID ? a->uid : (u32)-1, gid = a->which & SET_GID ? a->gid : (u32)-1;
    failed = call6(__NR_fchownat, fd, (long)"", uid, gid, AT_EMPTY_PATH, 0);
    if (failed < 0) return failed;
  }
  if (a->which & SET_MODE) {
    if (is_link) return -EOPNOTSUPP;
    failed = call(__NR_fchmodat, AT_FDCWD, path, a->mode & SETTABLE, 0);
    if (failed < 0) return failed;
  }
  if (a->which & SET_SIZE) {
    if (is_link) return -EINVAL;
    /* Without blocking: a lease of the sandbox would hold up `truncate`. */
    int open = (int)call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    failed = open < 0 ? open : call(__NR_ftruncate, open, a->size, 0, 0);
    close_fd(&open);
    if (failed < 0) return failed;
  }
  if (a->which & (SET_ATIME | SET_MTIME)) {
    struct __kernel_timespec times[2] = {{(long)a->atime, 0}, {(long)a->mtime, 0}};
    if (!(a->which & SET_ATIME)) times[0].tv_nsec = UTIME_OMIT;
    if (!(a->which & SET_MTIME)) times[1].tv_nsec = UTIME_OMIT;
    if (is_link) return -EOPNOTSUPP;
    failed = call(__NR_utimensat, AT_FDCWD, path, times, 0);
  }
  return failed;
}

long set_path(const char *path, int follow, const struct attributes_layout *a) {
  struct stat_layout found;
  int fd = (int)call(__NR_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW), 0);
  if (fd < 0) return fd;
  long failed = record_of(fd, "", AT_EMPTY_PATH, &found);
  int is_link = failed >= 0 && (found.mode & S_KIND) == S_LINK;
  if (failed >= 0) failed = set_attributes(fd, is_link, a);
  call(__NR_close, fd, 0, 0, 0);
  return failed;
}
