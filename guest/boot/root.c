#include "root.h"
#include "devices.h"
#include "failure.h"
#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>

#define BASE "/base"
#define DISK "/disk"
#define UPPER DISK "/upper"
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

/* The directory at the top of the disk is new: it gets the attributes of that of the image. */
static void make_upper(void) {
  long made = call(__NR_mkdirat, AT_FDCWD, UPPER, 0755, 0);
  if (made == -EEXIST) return;
  need(made, "make a directory on", DISK);
  struct statx from;
  need(call6(__NR_statx, AT_FDCWD, (long)BASE, 0, STATX_BASIC_STATS, (long)&from, 0), "read", BASE);
  need(call6(__NR_fchownat, AT_FDCWD, (long)UPPER, from.stx_uid, from.stx_gid, 0, 0), "set the owner of", UPPER);
  need(call(__NR_fchmodat, AT_FDCWD, UPPER, from.stx_mode & 07777, 0), "set the mode of", UPPER);
}

void mount_root(void) {
  char device[NAME_ROOM];
  find_disk("base", device);
  mount_at(BASE, device, "erofs", MS_RDONLY, 0);
  find_disk("disk", device);
  /* The blocks of removed files go back to the machine of the service. */
  mount_at(DISK, device, "ext4", 0, "discard");
  make_upper();
  call(__NR_mkdirat, AT_FDCWD, WORK, 0700, 0);
  /* With redirects a directory of the image can be renamed, as on a disk. */
  mount_at(ROOT, "overlay", "overlay", 0, "lowerdir=" BASE ",upperdir=" UPPER ",workdir=" WORK ",redirect_dir=on");
}

void unmount_root(void) {
  call(__NR_umount2, ROOT, 0, 0, 0);
  call(__NR_umount2, DISK, 0, 0, 0);
}
