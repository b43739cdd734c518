#include "archive.h"
#include "../common/directories.h"
#include "../protocol.h"
#include "control.h"
#include "devices.h"
#include "failure.h"
#include "hard-links.h"
#include "root.h"
#include "tar.h"
#include "times.h"
#include <asm/poll.h>
#include <linux/fcntl.h>
#include <linux/resource.h>
#include <linux/time_types.h>

#define TICK (SECOND / 100)
/* A path of PATH_MAX has half as many directories. Each has an open descriptor while its entries are sent. */
#define DEPTH (LIMIT_PATH / 2)
/* On the stack of each level. It has an entry with the longest name. */
#define ENTRIES_ROOM 1024
#define CONTENT_ROOM (32 * 1024)
/* The longest list of names of attributes, and the longest attribute. */
#define ATTRIBUTES_ROOM 65536
#define ATTRIBUTE "SCHILY.xattr."
#define ATTRIBUTE_NAME 255
#define LENGTH_BYTES 4
/* In a layer of an image such a name says that a file is removed. */
#define REMOVED ".wh."

static int port = -1;
/* The driver of the port takes 32 KiB at once. */
static struct {
  u8 length[LENGTH_BYTES];
  u8 bytes[LIMIT_ARCHIVE_PIECE];
} piece;
static u32 piece_bytes;
/* From ROOT on. */
static char path[LIMIT_PATH];
static u8 content[CONTENT_ROOM];
static char attribute_names[ATTRIBUTES_ROOM];
static u8 attribute[ATTRIBUTES_ROOM];

/* Without the service nobody needs the machine. */
static void await_port(short events, int has_service) {
  for (;;) {
    struct pollfd polled = {.fd = port, .events = events};
    need(call6(__NR_ppoll, (long)&polled, 1, 0, 0, 8, 0), "await the service", 0);
    if (!(polled.revents & POLLHUP)) return;
    if (has_service) power_off();
    pause_for(TICK);
  }
}

static void send_piece(void) {
  put(piece.length, piece_bytes, LENGTH_BYTES);
  const u64 all = LENGTH_BYTES + piece_bytes;
  for (u64 sent = 0; sent < all;) {
    long done = call(__NR_write, port, (u8 *)&piece + sent, all - sent, 0);
    if (done == -EAGAIN || done == 0) await_port(POLLOUT, 1);
    else sent += (u64)need(done, "send the archive", 0);
  }
  piece_bytes = 0;
}

static void put_bytes(const void *bytes, u64 n) {
  const u8 *from = bytes;
  while (n > 0) {
    const u64 room = sizeof piece.bytes - piece_bytes, taken = n < room ? n : room;
    memcpy(piece.bytes + piece_bytes, from, taken);
    piece_bytes += (u32)taken;
    from += taken;
    n -= taken;
    if (piece_bytes == sizeof piece.bytes) send_piece();
  }
}

/* As the sandbox knows it. */
static const char *shown(void) { return path[sizeof ROOT - 1] ? path + sizeof ROOT - 1 : "/"; }

/* `why` says what to do. It is after the path, of which it leaves room for the end. */
__attribute__((noreturn)) static void refuse(const char *why) {
  char text[LIMIT_CONTROL_LINE];
  const char *from = shown();
  const u64 n = length(from), room = sizeof text - sizeof "failed " - sizeof "cannot archive ...: " - length(why);
  const int is_cut = n > room;
  end_with(join(text, sizeof text - sizeof "failed ", "cannot archive ", is_cut ? "..." : "", is_cut ? from + n - room : from, ": ", why, (char *)0));
}

/* A reader takes the first equals sign of a record as the end of its key. */
static int is_ambiguous(const char *name) {
  while (*name && *name != '=') name++;
  return *name == '=';
}

static void add_attributes(void) {
  long n = call(__NR_llistxattr, path, attribute_names, sizeof attribute_names, 0);
  if (n == -EOPNOTSUPP) return;
  need(n, "read the attributes of", shown());
  for (long at = 0; at < n; at += (long)length(attribute_names + at) + 1) {
    char key[sizeof ATTRIBUTE + ATTRIBUTE_NAME];
    const char *name = attribute_names + at;
    if (is_ambiguous(name)) refuse("remove the attribute with = in its name");
    memcpy(key, ATTRIBUTE, sizeof ATTRIBUTE - 1);
    copy_text(key + sizeof ATTRIBUTE - 1, sizeof key - sizeof ATTRIBUTE + 1, name, length(name));
    long bytes = need(call(__NR_lgetxattr, path, name, attribute, sizeof attribute), "read the attributes of", shown());
    if (!add_record(key, attribute, (u64)bytes)) refuse("remove its longest attribute");
  }
}

static void put_content(u64 size) {
  long file = need(call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0), "open", shown());
  for (u64 left = size; left > 0;) {
    long got = need(call(__NR_read, file, content, left < sizeof content ? left : sizeof content, 0), "read", shown());
    if (got == 0) give_up("read", shown(), -EIO);
    put_bytes(content, (u64)got);
    left -= (u64)got;
  }
  call(__NR_close, file, 0, 0, 0);
  put_padding(size, put_bytes);
}

static u8 kind_of(u32 mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return TAR_FILE;
    case S_IFDIR: return TAR_DIRECTORY;
    case S_IFLNK: return TAR_SYMBOLIC_LINK;
    case S_IFCHR: return TAR_CHARACTER_DEVICE;
    case S_IFBLK: return TAR_BLOCK_DEVICE;
    case S_IFIFO: return TAR_PIPE;
    default: return 0; /* a socket has no form in an archive, and works with the process that made it alone */
  }
}

/* Returns whether it is a directory. `n`: the length of its path. */
static int add_entry(u64 n) {
  static char name[LIMIT_PATH + 2], target[LIMIT_PATH];
  struct tar_entry entry = {.name = name};
  need(call6(__NR_statx, AT_FDCWD, (long)path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, (long)&entry.about, 0), "read", shown());
  entry.kind = kind_of(entry.about.stx_mode);
  if (!entry.kind) return 0;
  const int is_directory = entry.kind == TAR_DIRECTORY;
  if (n == sizeof ROOT - 1) copy_text(name, sizeof name, "./", 2);
  else copy_text(name, sizeof name, path + sizeof ROOT, n - sizeof ROOT);
  if (is_directory && n > sizeof ROOT - 1) name[n - sizeof ROOT] = '/', name[n - sizeof ROOT + 1] = 0;
  if (!is_directory && entry.about.stx_nlink > 1) {
    const u64 device = (u64)entry.about.stx_dev_major << 32 | entry.about.stx_dev_minor;
    entry.target = note_name((struct file_identity){device, entry.about.stx_ino}, name);
    if (entry.target) entry.kind = TAR_HARD_LINK;
  }
  if (entry.kind == TAR_SYMBOLIC_LINK) {
    long got = need(call(__NR_readlinkat, AT_FDCWD, path, target, sizeof target - 1), "read", shown());
    target[got] = 0;
    entry.target = target;
  }
  begin_records();
  int fits = add_large_values(&entry);
  /* The first name of the file has them. */
  if (entry.kind != TAR_HARD_LINK) add_attributes();
  if (!fits) refuse("its values are too long");
  put_entry(&entry, put_bytes);
  if (entry.kind == TAR_FILE) put_content(entry.about.stx_size);
  return is_directory;
}

static void add_tree(u64 n, int depth) {
  if (!add_entry(n)) return;
  if (depth == DEPTH) refuse("too many directories in each other");
  u8 entries[ENTRIES_ROOM] __attribute__((aligned(8)));
  long directory = need(call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0), "open", shown());
  long got;
  while ((got = need(call(__NR_getdents64, directory, entries, sizeof entries, 0), "read", shown())) > 0)
    for (long at = 0; at < got;) {
      const Directory_Entry *entry = (const Directory_Entry *)(entries + at);
      at += entry->size;
      if (is_dots(entry->name)) continue;
      const u64 added = length(entry->name);
      if (n + 1 + added >= sizeof path) refuse("a path in it is too long: rename directories");
      path[n] = '/';
      copy_text(path + n + 1, sizeof path - n - 1, entry->name, added);
      if (same(entry->name, REMOVED, sizeof REMOVED - 1)) refuse("rename it: images keep .wh. for removed files");
      add_tree(n + 1 + added, depth + 1);
      path[n] = 0;
    }
  call(__NR_close, directory, 0, 0, 0);
}

void send_archive(void) {
  static const u8 end[2 * TAR_BLOCK];
  const struct rlimit64 descriptors = {DEPTH + 64, DEPTH + 64};
  need(call(__NR_prlimit64, 0, RLIMIT_NOFILE, &descriptors, 0), "raise the limit of open files", 0);
  port = open_port("agent");
  say("ready", (char *)0);
  flush_control();
  await_port(POLLOUT, 0);
  copy_text(path, sizeof path, ROOT, sizeof ROOT - 1);
  add_tree(sizeof ROOT - 1, 0);
  put_bytes(end, sizeof end);
  if (piece_bytes > 0) send_piece();
  send_piece();
  /* The monitor may still hold the last bytes. The service leaves when it has them. */
  for (;;) await_port(POLLIN, 1);
}
