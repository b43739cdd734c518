#include "root.h"
#include "configuration.h"
#include "devices.h"
#include "failure.h"
#include "patches.h"
#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>
#include <linux/time_types.h>

#define BASE "/base"
#define DISK "/disk"
#define UPPER DISK "/upper"
/* An upper directory that is not complete yet. */
#define DRAFT DISK "/new"
#define DRAFTS 1000
#define WORK DISK "/work"

static void mount_at(const char *directory, const char *source, const char *type, long flags, const char *options) {
  call(__NR_mkdirat, AT_FDCWD, directory, 0755, 0);
  need(call6(__NR_mount, (long)source, (long)directory, (long)type, flags, (long)options, 0), "mount", directory);
}

void mount_kernel_files(void) {
  mount_at("/proc", "proc", "proc", 0, 0);
  mount_at("/sys", "sysfs", "sysfs", 0, 0);
  mount_at("/dev", "devtmpfs", "devtmpfs", 0, 0);
  /* Without a console the kernel opens none of the first three descriptors, and others would get their numbers. */
  long fd;
  do fd = need(call(__NR_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0), "open", "/dev/null");
  while (fd < 3);
  call(__NR_close, fd, 0, 0, 0);
}

/* A machine that reads every file of a snapshot writes none of these times. */
static long access_times(void) { return configuration.is_archive ? MS_NOATIME : 0; }

/* With redirects a directory of the image can be renamed, as on a disk. */
static void mount_overlay(const char *upper) {
  char options[256];
  join(options, sizeof options, "lowerdir=" BASE ",workdir=" WORK ",redirect_dir=on,upperdir=", upper, (char *)0);
  mount_at(ROOT, "overlay", "overlay", access_times(), options);
}

/* A machine that ended in the middle has left one, which nobody uses again. */
static void make_draft(char draft[NAME_ROOM]) {
  long made = -EEXIST;
  for (u64 i = 0; made == -EEXIST && i < DRAFTS; i++) {
    char number[24];
    *put_number(number, i) = 0;
    made = call(__NR_mkdirat, AT_FDCWD, join(draft, NAME_ROOM, DRAFT, number, (char *)0), 0755, 0);
  }
  need(made, "make a directory on", DISK);
}

static void change(const char *upper) {
  if (configuration.patch_count == 0 && !configuration.is_copy) return;
  mount_overlay(upper);
  apply_patches();
  need(call(__NR_umount2, ROOT, 0, 0, 0), "unmount", ROOT);
}

static struct __kernel_timespec time_of(const struct statx_timestamp *time) {
  return (struct __kernel_timespec){time->tv_sec, time->tv_nsec};
}

/* The root directory of the disk is new. It gets the attributes of that of the image, the patches, then its name. */
static void make_upper(void) {
  char draft[NAME_ROOM];
  struct statx from;
  if (call(__NR_faccessat, AT_FDCWD, UPPER, 0, 0) == 0) {
    if (configuration.is_copy) change(UPPER);
    return;
  }
  make_draft(draft);
  need(call6(__NR_statx, AT_FDCWD, (long)BASE, 0, STATX_BASIC_STATS, (long)&from, 0), "read", BASE);
  need(call6(__NR_fchownat, AT_FDCWD, (long)draft, from.stx_uid, from.stx_gid, 0, 0), "set the owner of", draft);
  need(call(__NR_fchmodat, AT_FDCWD, draft, from.stx_mode & 07777, 0), "set the mode of", draft);
  const struct __kernel_timespec times[] = {time_of(&from.stx_atime), time_of(&from.stx_mtime)};
  need(call(__NR_utimensat, AT_FDCWD, draft, times, 0), "set the times of", draft);
  change(draft);
  /* The files are complete before the name is. */
  call(__NR_sync, 0, 0, 0, 0);
  need(call6(__NR_renameat2, AT_FDCWD, (long)draft, AT_FDCWD, (long)UPPER, 0, 0), "rename", draft);
}

void mount_root(void) {
  char device[NAME_ROOM];
  find_disk("base", device);
  mount_at(BASE, device, "erofs", MS_RDONLY, 0);
  find_disk("disk", device);
  /* The blocks of removed files go back to the machine of the service. */
  mount_at(DISK, device, "ext4", access_times(), "discard");
  call(__NR_mkdirat, AT_FDCWD, WORK, 0700, 0);
  make_upper();
  mount_overlay(UPPER);
}

void unmount_root(void) {
  call(__NR_umount2, ROOT, 0, 0, 0);
  call(__NR_umount2, DISK, 0, 0, 0);
}
