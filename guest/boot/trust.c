#include "trust.h"
#include "certificates.h"
#include "configuration.h"
#include "files.h"
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/stat.h>

#define KIND 0170000
#define PERMISSIONS 07777
/* As on Docker, in src/machine-network/trust/authorities.ts. */
#define LARGEST_BYTES (2u << 20)
#define MOST_LINKS 40
#define NEW_FILE ".sandkeep-new"

static u64 root_mount;

static int describe(long fd, struct statx *found) {
  long failed = call6(__NR_statx, fd, (long)"", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, (long)found, 0);
  return failed == 0 && (found->stx_mask & STATX_MNT_ID);
}

/* Opens a file or a directory of the disk of the sandbox, and of no other mount. Below 0: it is none. */
static long open_own(const char *path, u32 kind, struct statx *found) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
  if (fd < 0) return fd;
  if (describe(fd, found) && found->stx_mnt_id == root_mount && (found->stx_mode & KIND) == kind) return fd;
  call(__NR_close, fd, 0, 0, 0);
  return -EINVAL;
}

static u8 *map_bytes(u64 n) {
  long at = call6(__NR_mmap, 0, (long)n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at < 0 && at > -4096 ? 0 : (u8 *)at;
}

/* The content of a small file. Null: it is none. */
static u8 *read_small(const char *path, struct statx *found, u64 *n) {
  long fd = open_own(path, S_IFREG, found);
  if (fd < 0) return 0;
  u8 *content = found->stx_size > LARGEST_BYTES ? 0 : map_bytes(found->stx_size + 1);
  *n = 0;
  for (long got = 1; content && got > 0 && *n < found->stx_size; *n += got > 0 ? (u64)got : 0)
    got = call(__NR_pread64, fd, content + *n, found->stx_size - *n, *n);
  call(__NR_close, fd, 0, 0, 0);
  return content;
}

/* Whole or not at all, also where the machine ends meanwhile. */
static long replace_file(const char *path, const struct statx *like, const u8 *content, u64 n) {
  char draft[LIMIT_PATH];
  if (length(path) + sizeof NEW_FILE > sizeof draft) return -ENAMETOOLONG;
  join(draft, sizeof draft, path, NEW_FILE, (char *)0);
  call(__NR_unlinkat, AT_FDCWD, draft, 0, 0);
  long fd = call(__NR_openat, AT_FDCWD, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return fd;
  long failed = 0;
  for (u64 done = 0; failed >= 0 && done < n; done += failed > 0 ? (u64)failed : 0)
    failed = call(__NR_write, fd, content + done, n - done, 0);
  if (failed >= 0) failed = call(__NR_fchown, fd, like->stx_uid, like->stx_gid, 0);
  if (failed >= 0) failed = call(__NR_fchmod, fd, like->stx_mode & PERMISSIONS, 0, 0);
  if (failed >= 0) failed = call(__NR_fsync, fd, 0, 0, 0);
  call(__NR_close, fd, 0, 0, 0);
  if (failed >= 0) failed = call6(__NR_renameat2, AT_FDCWD, (long)draft, AT_FDCWD, (long)path, 0, 0);
  if (failed < 0) call(__NR_unlinkat, AT_FDCWD, draft, 0, 0);
  return failed < 0 ? failed : 0;
}

/* The path behind every link in the place of the file itself. The kernel follows those of its directories. */
static int final_path(const char *path, char to[LIMIT_PATH]) {
  char target[LIMIT_PATH], whole[LIMIT_PATH];
  copy_text(to, LIMIT_PATH, path, length(path));
  for (int links = 0; links < MOST_LINKS; links++) {
    long n = call(__NR_readlinkat, AT_FDCWD, to, target, sizeof target - 1);
    if (n == -EINVAL) return 1;
    if (n <= 0) return 0;
    target[n] = 0;
    u64 directory = target[0] == '/' ? 0 : length(to);
    while (directory > 0 && to[directory - 1] != '/') directory--;
    if (directory + (u64)n >= sizeof whole) return 0;
    to[directory] = 0;
    join(whole, sizeof whole, to, target, (char *)0);
    copy_text(to, LIMIT_PATH, whole, length(whole));
  }
  return 0;
}

/* Whether the bundle has the authorities now. */
static int update_bundle(const char *path) {
  char place[LIMIT_PATH];
  struct statx found;
  u64 n;
  Reader added = configuration.authorities;
  const u64 more = (u64)(added.end - added.at) + 1;
  if (!final_path(path, place)) return 0;
  u8 *content = read_small(place, &found, &n);
  u8 *changed = content ? map_bytes(n + more) : 0;
  int is_done = 0;
  if (changed) {
    u64 size = with_authorities(changed, content, n);
    is_done = size == n && same_bytes(changed, content, n);
    if (!is_done) is_done = replace_file(place, &found, changed, size) == 0;
    call(__NR_munmap, changed, n + more, 0, 0);
  }
  if (content) call(__NR_munmap, content, found.stx_size + 1, 0, 0);
  return is_done;
}

/* A file of the service in a directory of the store. */
static int write_own(const char *directory, const char *name, const u8 *content, u64 n) {
  char path[LIMIT_PATH];
  struct statx found, before;
  u64 had;
  long fd = open_own(directory, S_IFDIR, &found);
  if (fd < 0) return 0;
  call(__NR_close, fd, 0, 0, 0);
  join(path, sizeof path, directory, "/", name, (char *)0);
  u8 *now = read_small(path, &before, &had);
  const int is_same = now && had == n && same_bytes(now, content, n);
  if (now) call(__NR_munmap, now, before.stx_size + 1, 0, 0);
  if (is_same) return 1;
  const struct statx like = {.stx_mode = 0644};
  return replace_file(path, &like, content, n) == 0;
}

/* OpenSSL finds our authority there by the hash of its subject. */
static void add_hashed(Reader from) {
  char path[LIMIT_PATH];
  const char *directory = take_text(&from), *name = take_text(&from), *link = take_text(&from);
  if (from.bad || !write_own(directory, name, from.at, (u64)(from.end - from.at))) return;
  join(path, sizeof path, directory, "/", link, (char *)0);
  call(__NR_symlinkat, name, AT_FDCWD, path, 0);
}

/* The file by which programs find all authorities: a link to the bundle, to which programs of the sandbox add. */
static void add_whole(Reader from, const char *bundle) {
  const char *path = take_text(&from);
  if (from.bad) return;
  make_parents(path);
  if (bundle) call(__NR_symlinkat, bundle, AT_FDCWD, path, 0);
  else create_file(path, 0644, from.at, (u64)(from.end - from.at));
}

void install_authorities(void) {
  const struct configuration *wanted = &configuration;
  struct statx root;
  const char *bundle = 0;
  int has_store = 0;
  if (!wanted->authorities.at) return;
  long fd = call(__NR_openat, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  const int is_known = fd >= 0 && describe(fd, &root);
  call(__NR_close, fd, 0, 0, 0);
  if (is_known) {
    root_mount = root.stx_mnt_id;
    read_added();
    for (int i = 0; i < wanted->bundle_count; i++)
      if (update_bundle(wanted->bundles[i]) && !bundle) bundle = wanted->bundles[i];
    for (int i = 0; i < wanted->anchor_count; i++) {
      Reader from = wanted->anchors[i], added = wanted->authorities;
      const char *directory = take_text(&from), *name = take_text(&from);
      if (!from.bad && write_own(directory, name, added.at, (u64)(added.end - added.at))) has_store = 1;
    }
    if ((bundle || has_store) && wanted->hashed.at) add_hashed(wanted->hashed);
  }
  if (wanted->whole.at) add_whole(wanted->whole, bundle);
}
