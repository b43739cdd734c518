#include "patches.h"
#include "../common/directories.h"
#include "configuration.h"
#include "failure.h"
#include "files.h"
#include "root.h"
#include <linux/fcntl.h>
#include <linux/stat.h>
#include <linux/wait.h>

#define FILE_MODE 0644
#define DIRECTORY_MODE 0755
#define KIND 0170000
#define PERMISSIONS 07777
#define ID_BYTES 16
#define MISSING 0 /* no kind of file has this mode */

static int current;

__attribute__((noreturn)) static void refuse(const char *path, const char *reason) {
  char text[LIMIT_CONTROL_LINE], number[24];
  *put_number(number, (u64)current) = 0;
  join(text, sizeof text - sizeof "failed ", "patches[", number, "] cannot be applied: ", path, " ", reason, (char *)0);
  end_with(text);
}

static void check(long result, const char *path) {
  if (result >= 0) return;
  char reason[32], number[24];
  *put_number(number, (u64)-result) = 0;
  join(reason, sizeof reason, "fails with error ", number, (char *)0);
  refuse(path, result == -ENOTDIR  ? "is below a file"
               : result == -ENOSPC ? "does not fit on the disk"
                                   : reason);
}

/* The mode of a file with its kind, or MISSING. `flags`: 0 follows links. */
static u32 mode_of(const char *path, int flags) {
  struct statx found;
  long failed = call6(__NR_statx, AT_FDCWD, (long)path, flags, STATX_BASIC_STATS, (long)&found, 0);
  if (failed == -ENOENT) return MISSING;
  check(failed, path);
  return found.stx_mode;
}

/* Removes what a file or a link replaces. Returns its mode, or MISSING. */
static u32 make_place(const char *path, int replaces) {
  u32 found = mode_of(path, AT_SYMLINK_NOFOLLOW);
  if ((found & KIND) == S_IFDIR) refuse(path, "is a directory");
  if (found != MISSING && !replaces) refuse(path, "already exists, and replace is false");
  if (found == MISSING) check(make_parents(path), path);
  else check(call(__NR_unlinkat, AT_FDCWD, path, 0, 0), path);
  return found;
}

static void make_directory(const char *path, int has_mode, u32 mode) {
  u32 found = mode_of(path, AT_SYMLINK_NOFOLLOW);
  if (found != MISSING && (found & KIND) != S_IFDIR) refuse(path, "exists and is not a directory");
  check(make_directories(path), path);
  if (found == MISSING || has_mode) check(call(__NR_fchmodat, AT_FDCWD, path, has_mode ? mode : DIRECTORY_MODE, 0), path);
}

static void append(const char *path, Reader from) {
  u32 found = mode_of(path, 0);
  if (found == MISSING) refuse(path, "does not exist");
  if ((found & KIND) != S_IFREG) refuse(path, "is not a file");
  long file = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
  check(file, path);
  while (from.at < from.end) {
    long done = call(__NR_write, file, from.at, from.end - from.at, 0);
    check(done, path);
    from.at += done;
  }
  call(__NR_close, file, 0, 0, 0);
}

static void remove_path(const char *path) {
  u32 found = mode_of(path, AT_SYMLINK_NOFOLLOW);
  if (found == MISSING) refuse(path, "does not exist");
  if ((found & KIND) == S_IFDIR) check(remove_tree(AT_FDCWD, path, 0), path);
  else check(call(__NR_unlinkat, AT_FDCWD, path, 0, 0), path);
}

static void apply(Reader from) {
  struct boot_patch_layout patch = take_boot_patch(&from);
  const char *path = take_text(&from);
  if (from.bad) refuse(path, "is cut off");
  const int replaces = patch.flags & PATCH_REPLACE, has_mode = patch.flags & PATCH_HAS_MODE;
  switch (patch.operation) {
    case BOOT_PATCH_WRITE: {
      u32 before = make_place(path, replaces);
      u32 usual = (before & KIND) == S_IFREG ? before & PERMISSIONS : FILE_MODE;
      check(create_file(path, has_mode ? patch.mode : usual, from.at, (u64)(from.end - from.at)), path);
      return;
    }
    case BOOT_PATCH_LINK: {
      char target[LIMIT_PATH];
      make_place(path, replaces);
      copy_text(target, sizeof target, (char *)from.at, (u64)(from.end - from.at));
      check(call(__NR_symlinkat, target, AT_FDCWD, path, 0), path);
      return;
    }
    case BOOT_PATCH_DIRECTORY: return make_directory(path, has_mode, patch.mode);
    case BOOT_PATCH_APPEND: return append(path, from);
    case BOOT_PATCH_REMOVE: return remove_path(path);
    default: refuse(path, "has an unknown operation");
  }
}

/* Programs take the id of a machine for unique. A sandbox without one gets none. */
static void renew_machine_id(void) {
  u8 id[ID_BYTES];
  char text[2 * ID_BYTES + 1];
  struct statx found;
  long file = call(__NR_openat, AT_FDCWD, "/etc/machine-id", O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
  if (file < 0) return;
  long failed = call6(__NR_statx, file, (long)"", AT_EMPTY_PATH, STATX_BASIC_STATS, (long)&found, 0);
  if (failed == 0 && (found.stx_mode & KIND) == S_IFREG && found.stx_size > 0) {
    need(call(__NR_getrandom, id, sizeof id, 0, 0), "get", "random bytes");
    for (int i = 0; i < ID_BYTES; i++) {
      text[2 * i] = "0123456789abcdef"[id[i] >> 4];
      text[2 * i + 1] = "0123456789abcdef"[id[i] & 15];
    }
    text[2 * ID_BYTES] = '\n';
    need(call(__NR_ftruncate, file, 0, 0, 0), "renew", "/etc/machine-id");
    need(call(__NR_write, file, text, sizeof text, 0), "renew", "/etc/machine-id");
  }
  call(__NR_close, file, 0, 0, 0);
}

void apply_patches(void) {
  int pair[2], status = 0;
  char words[LIMIT_CONTROL_LINE];
  need(call(__NR_pipe2, pair, O_CLOEXEC, 0, 0), "make a pipe", 0);
  long child = need(call(__NR_clone, SIGCHLD, 0, 0, 0), "start a process", 0);
  if (child == 0) {
    failure_pipe = pair[1];
    need(call(__NR_chroot, ROOT, 0, 0, 0), "enter", ROOT);
    need(call(__NR_chdir, "/", 0, 0, 0), "enter", ROOT);
    if (configuration.is_copy) renew_machine_id();
    for (; current < configuration.patch_count; current++) apply(configuration.patches[current]);
    leave(0);
  }
  call(__NR_close, pair[1], 0, 0, 0);
  long got = call(__NR_read, pair[0], words, sizeof words - 1, 0);
  call(__NR_close, pair[0], 0, 0, 0);
  call(__NR_wait4, child, &status, 0, 0);
  if (got <= 0 && status == 0) return;
  words[got > 0 ? got : 0] = 0;
  end_with(got > 0 ? words : "the patches cannot be applied: their process was killed");
}
