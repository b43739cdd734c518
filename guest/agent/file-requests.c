#include "file-requests.h"
#include "../common/execute.h"
#include "channels.h"
#include "file-attributes.h"
#include "file-trees.h"
#include "frames.h"
#include "handles.h"
#include "real-path.h"
#include "reports.h"
#include "streams.h"
#include <linux/fcntl.h>

static long answer_record(int directory, const char *path, int flags) {
  struct stat_layout record;
  long failed = record_of(directory, path, flags, &record);
  if (failed < 0) return failed;
  put_stat(ANSWER_DATA, record);
  return STAT_BYTES;
}

/* `number`: of keep_handle. */
static long answer_handle(long number) {
  if (number < 0) return number;
  put(ANSWER_DATA, (u64)number, 4);
  return 4;
}

static long open_file(Reader *from, u32 owner) {
  struct open_layout head = take_open(from);
  u8 wanted = head.flags;
  char *path = take_text(from);
  if (from->bad) return -EINVAL;
  /* Without blocking: a named pipe must not hold up everything else. */
  long flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  flags |= wanted & OPEN_WRITE ? (wanted & OPEN_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
  if (wanted & OPEN_APPEND) flags = (flags & ~O_ACCMODE) | O_APPEND | (wanted & OPEN_READ ? O_RDWR : O_WRONLY);
  if (wanted & OPEN_CREATE) flags |= O_CREAT;
  if (wanted & OPEN_TRUNCATE) flags |= O_TRUNC;
  if (wanted & OPEN_NEW) flags |= O_CREAT | O_EXCL;
  int fd = (int)call(__NR_openat, AT_FDCWD, path, flags, head.mode & SETTABLE);
  return fd < 0 ? fd : answer_handle(keep_handle(fd, owner, 0));
}

static long read_directory(Handle *h) {
  static u8 entries[16384] __attribute__((aligned(8)));
  u8 *to = ANSWER_DATA;
  /* Entries that all vanished meanwhile are not the end. */
  while (to == ANSWER_DATA) {
    long got = call(__NR_getdents64, h->fd, entries, sizeof entries, 0);
    if (got <= 0) return got;
    for (long at = 0; at < got;) {
      Directory_Entry *e = (Directory_Entry *)(entries + at);
      at += e->size;
      struct stat_layout record;
      if (is_dots(e->name) || record_of(h->fd, e->name, AT_SYMLINK_NOFOLLOW, &record) < 0) continue;
      put_stat(to, record);
      u64 n = length(e->name) + 1;
      memcpy(to + STAT_BYTES, e->name, n);
      to += STAT_BYTES + n;
    }
  }
  return to - ANSWER_DATA;
}

static long write_at(int fd, u64 offset, u8 *data, u64 n) {
  while (n > 0) {
    long done = call(__NR_pwrite64, fd, data, n, offset);
    if (done == -ESPIPE) done = call(__NR_write, fd, data, n, 0);
    if (done == -EINTR) continue;
    if (done == 0) return -EIO;
    if (done < 0) return done;
    data += done;
    offset += (u64)done;
    n -= (u64)done;
  }
  return 0;
}

/* Work that takes long is done by a process of its own, which tells its result as a failed start does. */
static void in_background(u32 id, u8 operation, u32 owner, Reader *from) {
  Channel *c = make(id);
  int report[2];
  if (!c) return answer(id, -EAGAIN, 0);
  long pid = call(__NR_pipe2, report, O_CLOEXEC, 0, 0);
  if (pid >= 0) {
    c->report = report[0];
    pid = fork_process();
    if (pid != 0) close_fd(&report[1]);
  }
  if (pid < 0) {
    forget(c);
    return answer(id, pid, 0);
  }
  if (pid == 0) {
    call(__NR_setsid, 0, 0, 0, 0);
    die_with_agent();
    /* The child holds open no input of a command, no connection, and not the streams of the agent. */
    for (int i = 0; i < CHANNELS; i++)
      if (channels[i].state != FREE) forget(&channels[i]);
    for (int fd = 0; fd < 3; fd++) call(__NR_close, fd, 0, 0, 0);
    long result;
    if (operation == FILE_COPY) {
      char *source = take_text(from), *target = take_text(from);
      result = from->bad ? -EINVAL : copy_file(source, target);
    } else {
      u8 recursive = (u8)take(from, 1);
      char *path = take_text(from);
      if (from->bad) result = -EINVAL;
      else if (recursive) result = remove_tree(AT_FDCWD, path, 0);
      else result = call(__NR_unlinkat, AT_FDCWD, path, AT_REMOVEDIR, 0);
    }
    give_up(report[1], 0, result);
  }
  c->state = WORKING;
  c->owner = owner;
  c->pid = c->group = (int)pid;
}

void end_owner(u32 owner) {
  close_handles(owner);
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state == WORKING && channels[i].owner == owner) close_channel(&channels[i]);
}

static long operate(u8 operation, u32 owner, Reader *from) {
  switch (operation) {
    case FILE_STAT: {
      int follow = (int)take(from, 1);
      char *path = take_text(from);
      return from->bad ? -EINVAL : answer_record(AT_FDCWD, path, follow ? 0 : AT_SYMLINK_NOFOLLOW);
    }
    case FILE_SET: {
      int follow = (int)take(from, 1);
      struct attributes_layout a = take_attributes(from);
      char *path = take_text(from);
      return from->bad ? -EINVAL : set_path(path, follow, &a);
    }
    case FILE_READ_LINK: {
      char *path = take_text(from);
      return from->bad ? -EINVAL : call(__NR_readlinkat, AT_FDCWD, path, ANSWER_DATA, PATH_ROOM);
    }
    case FILE_SYMLINK: {
      char *target = take_text(from), *path = take_text(from);
      return from->bad ? -EINVAL : call(__NR_symlinkat, target, AT_FDCWD, path, 0);
    }
    case FILE_MKDIR: {
      struct mkdir_layout head = take_mkdir(from);
      char *path = take_text(from);
      return from->bad || !path[0] ? -EINVAL : make_directories(path, head.has_mode, head.mode);
    }
    case FILE_REMOVE: {
      char *path = take_text(from);
      return from->bad ? -EINVAL : call(__NR_unlinkat, AT_FDCWD, path, 0, 0);
    }
    case FILE_RENAME: {
      char *source = take_text(from), *target = take_text(from);
      return from->bad ? -EINVAL : call6(__NR_renameat2, AT_FDCWD, (long)source, AT_FDCWD, (long)target, 0, 0);
    }
    case FILE_REAL_PATH: {
      char *path = take_text(from);
      return from->bad ? -EINVAL : real_path(path, ANSWER_DATA);
    }
    case FILE_OPEN: return open_file(from, owner);
    case FILE_OPEN_DIR: {
      char *path = take_text(from);
      if (from->bad) return -EINVAL;
      int fd = (int)call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
      return fd < 0 ? fd : answer_handle(keep_handle(fd, owner, 1));
    }
  }
  Handle *h = find_handle((u32)take(from, 4), owner);
  if (!h) return -EBADF;
  switch (operation) {
    case FILE_CLOSE: close_fd(&h->fd); return 0;
    case FILE_READ: {
      u64 offset = take(from, 8), n = take(from, 4);
      if (n > FRAME_ROOM - 64) n = FRAME_ROOM - 64;
      long got = call(__NR_pread64, h->fd, ANSWER_DATA, n, offset);
      return got == -ESPIPE ? call(__NR_read, h->fd, ANSWER_DATA, n, 0) : got;
    }
    case FILE_WRITE: {
      u64 offset = take(from, 8);
      return from->bad ? -EINVAL : write_at(h->fd, offset, from->at, (u64)(from->end - from->at));
    }
    case FILE_READ_DIR: return h->is_directory ? read_directory(h) : -ENOTDIR;
    case FILE_STAT_OPEN: return answer_record(h->fd, "", AT_EMPTY_PATH);
    case FILE_SET_OPEN: {
      struct attributes_layout a = take_attributes(from);
      return from->bad ? -EINVAL : set_attributes(h->fd, 0, &a);
    }
  }
  return -ENOSYS;
}

void handle_files(u32 id, Reader *from) {
  struct files_layout head = take_files(from);
  if (from->bad) return answer(id, -EINVAL, 0);
  if (head.operation == FILE_COPY || head.operation == FILE_REMOVE_DIR) return in_background(id, head.operation, head.owner, from);
  long n = operate(head.operation, head.owner, from);
  answer(id, n, n > 0 ? (u32)n : 0);
}
