#include "mounts.h"
#include "configuration.h"
#include "devices.h"
#include "failure.h"
#include "trust.h"
#include <linux/fcntl.h>
#include <linux/mount.h>

#define PROGRAMS "/programs"
#define OWN "/.sandkeep"
#define OWN_PROGRAMS OWN "/bin"
/* The files that are bound to other places. */
#define OWN_FILES OWN "/files"
/* Where the directory of a shared file is for a moment. */
#define OWN_SHARE OWN "/share"
#define KEPT_FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* Of the file systems that a disk image may have, those that are recognized by their first blocks. */
static const char *const FOUND_TYPES[] = {"ext4", "xfs", "erofs", "squashfs", "vfat"};

static long mount_at(const char *source, const char *target, const char *type, long flags, const char *options) {
  return call6(__NR_mount, (long)source, (long)target, (long)type, flags, (long)options, 0);
}

static void mount_new(const char *source, const char *target, const char *type, long flags, const char *options) {
  need(make_directories(target), "make the directory", target);
  need(mount_at(source, target, type, flags, options), "mount", target);
}

static void mount_kernel(void) {
  static const char *const links[][2] = {
    {"/proc/self/fd", "/dev/fd"},
    {"/proc/self/fd/0", "/dev/stdin"},
    {"/proc/self/fd/1", "/dev/stdout"},
    {"/proc/self/fd/2", "/dev/stderr"},
  };
  mount_new("proc", "/proc", "proc", KEPT_FLAGS, 0);
  mount_new("sysfs", "/sys", "sysfs", KEPT_FLAGS, 0);
  mount_new("cgroup2", "/sys/fs/cgroup", "cgroup2", KEPT_FLAGS, 0);
  mount_new("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, 0);
  mount_new("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
  mount_new("tmpfs", "/dev/shm", "tmpfs", KEPT_FLAGS, "mode=1777,size=64m");
  /* Not every kernel has it. */
  make_directories("/dev/mqueue");
  mount_at("mqueue", "/dev/mqueue", "mqueue", KEPT_FLAGS, 0);
  for (u64 i = 0; i < sizeof links / sizeof *links; i++) call(__NR_symlinkat, links[i][0], AT_FDCWD, links[i][1], 0);
}

long open_programs(void) {
  return need(call(__NR_open_tree, AT_FDCWD, PROGRAMS, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, 0), "open", PROGRAMS);
}

/* The file that another one is to be bound over. A pipe of the image in this place would wait for a reader. */
static void make_place(const char *path) {
  need(make_parents(path), "make the directory of", path);
  long place = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
  if (place >= 0) call(__NR_close, place, 0, 0, 0);
}

/* A file outside of OWN is bound over that of the image, which the disk keeps. */
static void add_file(Reader from, int number) {
  char own[LIMIT_PATH], digits[24];
  struct boot_file_layout file = take_boot_file(&from);
  const char *path = take_text(&from);
  if (from.bad) give_up("read the boot configuration:", "a file is wrong", -EINVAL);
  const u64 n = (u64)(from.end - from.at);
  if (same(path, OWN "/", sizeof OWN)) {
    need(make_parents(path), "make the directory of", path);
    need(create_file(path, file.mode, from.at, n), "write", path);
    return;
  }
  *put_number(digits, (u64)number) = 0;
  join(own, sizeof own, OWN_FILES "/", digits, (char *)0);
  need(create_file(own, file.mode, from.at, n), "write", path);
  make_place(path);
  need(mount_at(own, path, 0, MS_BIND, 0), "mount", path);
}

static void add_own_files(int programs) {
  mount_new("tmpfs", OWN, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
  need(make_directories(OWN_PROGRAMS), "make the directory", OWN_PROGRAMS);
  need(call6(__NR_move_mount, programs, (long)"", AT_FDCWD, (long)OWN_PROGRAMS, MOVE_MOUNT_F_EMPTY_PATH, 0), "mount",
       OWN_PROGRAMS);
  need(make_directories(OWN_FILES), "make the directory", OWN_FILES);
  for (int i = 0; i < configuration.file_count; i++) add_file(configuration.files[i], i);
}

static void protect_own_files(void) {
  need(mount_at(0, OWN_PROGRAMS, 0, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, 0), "protect", OWN_PROGRAMS);
  need(mount_at(0, OWN, 0, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, 0), "protect", OWN);
}

static long mount_disk(const char *serial, const char *target, const char *type, long flags, const char *options) {
  char device[NAME_ROOM];
  find_disk(serial, device);
  if (type[0]) return mount_at(device, target, type, flags, options);
  long failed = -EINVAL;
  for (u64 i = 0; failed == -EINVAL && i < sizeof FOUND_TYPES / sizeof *FOUND_TYPES; i++) {
    failed = mount_at(device, target, FOUND_TYPES[i], flags, options);
    /* The kernel may lack one of them. */
    if (failed == -ENODEV) failed = -EINVAL;
  }
  return failed;
}

/* The directory of the tag is how the file comes here, and no part of the sandbox. */
static long mount_shared_file(const char *tag, const char *target, long flags, const char *options) {
  make_place(target);
  mount_new(tag, OWN_SHARE, "virtiofs", 0, options);
  long failed = mount_at(OWN_SHARE "/" SHARED_FILE, target, 0, MS_BIND, 0);
  if (failed >= 0 && flags) failed = mount_at(0, target, 0, MS_REMOUNT | MS_BIND | flags, 0);
  need(call(__NR_umount2, OWN_SHARE, 0, 0, 0), "unmount", OWN_SHARE);
  call(__NR_unlinkat, AT_FDCWD, OWN_SHARE, AT_REMOVEDIR, 0);
  return failed;
}

static void add_mount(Reader from) {
  struct boot_mount_layout head = take_boot_mount(&from);
  const char *source = take_text(&from), *target = take_text(&from), *type = take_text(&from), *options = take_text(&from);
  if (from.bad) give_up("read the boot configuration:", "a mount is wrong", -EINVAL);
  const long flags = head.flags & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
  long failed = -EINVAL;
  if (head.kind == BOOT_MOUNT_SHARED_FILE) {
    need(mount_shared_file(source, target, flags, options), "mount", target);
    return;
  }
  need(make_directories(target), "make the directory", target);
  if (head.kind == BOOT_MOUNT_MEMORY) failed = mount_at("tmpfs", target, "tmpfs", flags, options);
  if (head.kind == BOOT_MOUNT_SHARED) failed = mount_at(source, target, "virtiofs", flags, options);
  if (head.kind == BOOT_MOUNT_DISK) failed = mount_disk(source, target, type, flags, options);
  need(failed, "mount", target);
}

void mount_sandbox_files(int programs) {
  mount_kernel();
  add_own_files(programs);
  for (int i = 0; i < configuration.mount_count; i++) add_mount(configuration.mounts[i]);
  /* It finds the files that a volume hides by then. */
  install_authorities();
  protect_own_files();
}
