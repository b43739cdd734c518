/*
 * File operations of the agent. A request: operation (u8), owner (u32), arguments. The answer: DONE with an errno and data.
 * The owner is a connection of a client: its handles close with END_OWNER. Relative paths begin at the root.
 */
#define FILE_STAT 1       /* follow (u8), path: a record */
#define FILE_SET 2        /* follow (u8), which (u8), mode, uid, gid (u32), size, atime, mtime (u64), path */
#define FILE_READ_LINK 3  /* path: a text */
#define FILE_SYMLINK 4    /* target, path */
#define FILE_MKDIR 5      /* has mode (u8), mode (u32), path */
#define FILE_REMOVE 6     /* path */
#define FILE_REMOVE_DIR 7 /* recursive (u8), path */
#define FILE_COPY 8       /* path, path */
#define FILE_RENAME 9     /* path, path */
#define FILE_REAL_PATH 10 /* path: a text */
#define FILE_OPEN 11      /* flags (u8), mode (u32), path: a handle (u32) */
#define FILE_OPEN_DIR 12  /* path: a handle (u32) */
#define FILE_CLOSE 13     /* handle (u32) */
#define FILE_READ 14      /* handle (u32), offset (u64), length (u32): data */
#define FILE_WRITE 15     /* handle (u32), offset (u64), data */
#define FILE_READ_DIR 16  /* handle (u32): records with names; none at the end */
#define FILE_STAT_OPEN 17 /* handle (u32): a record */
#define FILE_SET_OPEN 18  /* handle (u32), which (u8), as FILE_SET without path */

#define OPEN_READ 1
#define OPEN_WRITE 2
#define OPEN_APPEND 4
#define OPEN_CREATE 8
#define OPEN_TRUNCATE 16
#define OPEN_NEW 32

#define SET_MODE 1
#define SET_UID 2
#define SET_GID 4
#define SET_SIZE 8
#define SET_ATIME 16
#define SET_MTIME 32

#ifndef SMALL_TABLES
#define HANDLES 4096
#define OWNER_HANDLES 1024
#endif
#define RECORD 36
#define DEPTH 512

#define S_KIND 0170000
#define S_DIR 0040000
#define S_LINK 0120000
#define S_REGULAR 0100000
#define PERMISSIONS 0777

typedef struct {
  u64 inode, offset;
  u16 size;
  u8 kind;
  char name[];
} Directory_Entry;

typedef struct {
  u8 which;
  u32 mode, uid, gid;
  u64 size, atime, mtime;
} Attributes;

typedef struct {
  int fd; /* -1 when free */
  u32 owner;
  int is_directory;
} Handle;

static Handle handles[HANDLES];

static void answer(u32 id, long error, u32 n) {
  put32(outgoing + HEADER, error < 0 ? (u32)-error : 0);
  send_outgoing(id, DONE, 4 + (error < 0 ? 0 : n));
}

static u8 *answer_data(void) { return outgoing + HEADER + 4; }

static long status_of(int directory, const char *path, int flags, struct statx *s) {
  return call6(__NR_statx, directory, (long)path, flags, STATX_BASIC_STATS, (long)s, 0);
}

static long record_of(int directory, const char *path, int flags, u8 *to) {
  struct statx s;
  long failed = status_of(directory, path, flags, &s);
  if (failed < 0) return failed;
  put32(to, s.stx_mode);
  put32(to + 4, s.stx_uid);
  put32(to + 8, s.stx_gid);
  put64(to + 12, s.stx_size);
  put64(to + 20, (u64)s.stx_mtime.tv_sec);
  put64(to + 28, (u64)s.stx_atime.tv_sec);
  return RECORD;
}

static Attributes take_attributes(Reader *from) {
  Attributes a;
  a.which = (u8)take(from, 1);
  a.mode = (u32)take(from, 4);
  a.uid = (u32)take(from, 4);
  a.gid = (u32)take(from, 4);
  a.size = take(from, 8);
  a.atime = take(from, 8);
  a.mtime = take(from, 8);
  return a;
}

static void own_path(char *to, int fd) {
  copy_text(to, 32, "/proc/self/fd/", 14);
  char digits[12];
  int n = 0;
  do digits[n++] = (char)('0' + fd % 10);
  while ((fd /= 10) > 0);
  u64 at = 14;
  while (n > 0) to[at++] = digits[--n];
  to[at] = 0;
}

/* Changes the file that a descriptor stands for; it may be opened by O_PATH. */
static long set_attributes(int fd, int is_link, const Attributes *a) {
  char path[32];
  own_path(path, fd);
  long failed = 0;
  if (a->which & (SET_UID | SET_GID)) {
    u32 uid = a->which & SET_UID ? a->uid : (u32)-1, gid = a->which & SET_GID ? a->gid : (u32)-1;
    failed = call6(__NR_fchownat, fd, (long)"", uid, gid, AT_EMPTY_PATH, 0);
    if (failed < 0) return failed;
  }
  if (a->which & SET_MODE) {
    if (is_link) return -EOPNOTSUPP;
    failed = call(__NR_fchmodat, AT_FDCWD, path, a->mode & 07777, 0);
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

static long set_path(const char *path, int follow, const Attributes *a) {
  u8 record[RECORD];
  int fd = (int)call(__NR_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW), 0);
  if (fd < 0) return fd;
  long failed = record_of(fd, "", AT_EMPTY_PATH, record);
  int is_link = failed >= 0 && (record[1] << 8 & S_KIND) == S_LINK;
  if (failed >= 0) failed = set_attributes(fd, is_link, a);
  call(__NR_close, fd, 0, 0, 0);
  return failed;
}

static long make_directories(char *path, int has_mode, u32 mode) {
  u8 record[RECORD];
  long failed = 0;
  for (char *c = path + 1; path[0]; c++) {
    char was = *c;
    if (was && was != '/') continue;
    *c = 0;
    failed = call(__NR_mkdirat, AT_FDCWD, path, 0777, 0);
    *c = was;
    if (failed < 0 && failed != -EEXIST && failed != -EROFS) return failed;
    if (!was) break;
  }
  long found = record_of(AT_FDCWD, path, 0, record);
  if (found < 0) return failed < 0 && failed != -EEXIST ? failed : found;
  if ((record[1] << 8 & S_KIND) != S_DIR) return -ENOTDIR;
  if (has_mode) return call(__NR_fchmodat, AT_FDCWD, path, mode & 07777, 0);
  return 0;
}

static int is_dots(const char *name) { return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])); }

/* Removes a directory and everything below it, each part by its parent's descriptor. */
static long remove_tree(int parent, const char *name, int depth) {
  if (depth > DEPTH) return -ENAMETOOLONG;
  int fd = (int)call(__NR_openat, parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return fd;
  u8 entries[4096] __attribute__((aligned(8)));
  long failed = 0, got;
  int removed;
  do {
    removed = 0;
    call(__NR_lseek, fd, 0, 0, 0);
    while ((got = call(__NR_getdents64, fd, entries, sizeof entries, 0)) > 0) {
      for (long at = 0; at < got;) {
        Directory_Entry *e = (Directory_Entry *)(entries + at);
        at += e->size;
        if (is_dots(e->name)) continue;
        long done = call(__NR_unlinkat, fd, e->name, 0, 0);
        if (done == -EISDIR || done == -EPERM) done = remove_tree(fd, e->name, depth + 1);
        if (done < 0) failed = done;
        else removed = 1;
      }
    }
    if (got < 0) failed = got;
  } while (removed && failed == 0);
  call(__NR_close, fd, 0, 0, 0);
  if (failed < 0) return failed;
  return call(__NR_unlinkat, parent, name, AT_REMOVEDIR, 0);
}

static int same_file(const struct statx *a, const struct statx *b) {
  return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

/* A copy belongs to the user of the agent, so it is never set-uid. */
static long copy_file(const char *from, const char *to) {
  int in = (int)call(__NR_openat, AT_FDCWD, from, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (in < 0) return in;
  struct statx source, target;
  long failed = status_of(in, "", AT_EMPTY_PATH, &source);
  if (failed < 0) return failed;
  if ((source.stx_mode & S_KIND) == S_DIR) return -EISDIR;
  if ((source.stx_mode & S_KIND) != S_REGULAR) return -EINVAL;
  long flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int out = (int)call(__NR_openat, AT_FDCWD, to, flags, source.stx_mode & PERMISSIONS);
  if (out < 0) return out;
  if ((failed = status_of(out, "", AT_EMPTY_PATH, &target)) < 0) return failed;
  if (same_file(&target, &source)) return -EINVAL;
  if ((target.stx_mode & S_KIND) != S_REGULAR) return -EINVAL;
  if ((failed = call(__NR_ftruncate, out, 0, 0, 0)) < 0) return failed;
  call(__NR_fchmod, out, source.stx_mode & PERMISSIONS, 0, 0);
  for (;;) {
    long got = call(__NR_read, in, outgoing, sizeof outgoing, 0);
    if (got <= 0) return got;
    for (long at = 0; at < got;) {
      long done = call(__NR_write, out, outgoing + at, got - at, 0);
      if (done <= 0) return done < 0 ? done : -EIO;
      at += done;
    }
  }
}

/*
 * The path of an open file: a text of `to`, which has room for PATH_ROOM. The kernel also has texts that are no path, as "pipe:[1]", and puts
 * DELETED behind a file without a name. That has one all the same where it is mounted, as the files of the service are.
 */
static long path_of(int fd, u8 *to) {
  static const char DELETED[] = " (deleted)";
  char own[32];
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
static long real_path(char *path, u8 *to) {
  long n;
  int left = 16;
  do n = find_real_path(path, to);
  while (n == -ESTALE && --left > 0);
  return n;
}

static long keep_handle(int fd, u32 owner, int is_directory) {
  int place = -1, owned = 0;
  for (int i = 0; i < HANDLES; i++) {
    if (handles[i].fd < 0) place = i;
    else if (handles[i].owner == owner) owned++;
  }
  if (place < 0 || owned >= OWNER_HANDLES) {
    call(__NR_close, fd, 0, 0, 0);
    return -EMFILE;
  }
  handles[place] = (Handle){fd, owner, is_directory};
  put32(answer_data(), (u32)place + 1);
  return 4;
}

static Handle *find_handle(u32 number, u32 owner) {
  if (number == 0 || number > HANDLES) return 0;
  Handle *h = &handles[number - 1];
  return h->fd >= 0 && h->owner == owner ? h : 0;
}

static long open_file(Reader *from, u32 owner) {
  u8 wanted = (u8)take(from, 1);
  u32 mode = (u32)take(from, 4);
  char *path = take_text(from);
  if (from->bad) return -EINVAL;
  /* Without blocking: a named pipe must not hold up everything else. */
  long flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  flags |= wanted & OPEN_WRITE ? (wanted & OPEN_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
  if (wanted & OPEN_APPEND) flags = (flags & ~O_ACCMODE) | O_APPEND | (wanted & OPEN_READ ? O_RDWR : O_WRONLY);
  if (wanted & OPEN_CREATE) flags |= O_CREAT;
  if (wanted & OPEN_TRUNCATE) flags |= O_TRUNC;
  if (wanted & OPEN_NEW) flags |= O_CREAT | O_EXCL;
  int fd = (int)call(__NR_openat, AT_FDCWD, path, flags, mode & 07777);
  return fd < 0 ? fd : keep_handle(fd, owner, 0);
}

static long read_directory(Handle *h) {
  static u8 entries[16384] __attribute__((aligned(8)));
  u8 *to = answer_data();
  /* Entries that all vanished meanwhile are not the end. */
  while (to == answer_data()) {
    long got = call(__NR_getdents64, h->fd, entries, sizeof entries, 0);
    if (got <= 0) return got;
    for (long at = 0; at < got;) {
      Directory_Entry *e = (Directory_Entry *)(entries + at);
      at += e->size;
      if (is_dots(e->name) || record_of(h->fd, e->name, AT_SYMLINK_NOFOLLOW, to) < 0) continue;
      u64 n = length(e->name) + 1;
      memcpy(to + RECORD, e->name, n);
      to += RECORD + n;
    }
  }
  return to - answer_data();
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

static void end_owner(u32 owner) {
  for (int i = 0; i < HANDLES; i++)
    if (handles[i].fd >= 0 && handles[i].owner == owner) close_fd(&handles[i].fd);
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state == WORKING && channels[i].owner == owner) close_channel(&channels[i]);
}

static long operate(u8 operation, u32 owner, Reader *from) {
  switch (operation) {
    case FILE_STAT: {
      int follow = (int)take(from, 1);
      char *path = take_text(from);
      return from->bad ? -EINVAL : record_of(AT_FDCWD, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, answer_data());
    }
    case FILE_SET: {
      int follow = (int)take(from, 1);
      Attributes a = take_attributes(from);
      char *path = take_text(from);
      return from->bad ? -EINVAL : set_path(path, follow, &a);
    }
    case FILE_READ_LINK: {
      char *path = take_text(from);
      return from->bad ? -EINVAL : call(__NR_readlinkat, AT_FDCWD, path, answer_data(), PATH_ROOM);
    }
    case FILE_SYMLINK: {
      char *target = take_text(from), *path = take_text(from);
      return from->bad ? -EINVAL : call(__NR_symlinkat, target, AT_FDCWD, path, 0);
    }
    case FILE_MKDIR: {
      int has_mode = (int)take(from, 1);
      u32 mode = (u32)take(from, 4);
      char *path = take_text(from);
      return from->bad || !path[0] ? -EINVAL : make_directories(path, has_mode, mode);
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
      return from->bad ? -EINVAL : real_path(path, answer_data());
    }
    case FILE_OPEN: return open_file(from, owner);
    case FILE_OPEN_DIR: {
      char *path = take_text(from);
      if (from->bad) return -EINVAL;
      int fd = (int)call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
      return fd < 0 ? fd : keep_handle(fd, owner, 1);
    }
  }
  Handle *h = find_handle((u32)take(from, 4), owner);
  if (!h) return -EBADF;
  switch (operation) {
    case FILE_CLOSE: close_fd(&h->fd); return 0;
    case FILE_READ: {
      u64 offset = take(from, 8), n = take(from, 4);
      if (n > FRAME_ROOM - 64) n = FRAME_ROOM - 64;
      long got = call(__NR_pread64, h->fd, answer_data(), n, offset);
      return got == -ESPIPE ? call(__NR_read, h->fd, answer_data(), n, 0) : got;
    }
    case FILE_WRITE: {
      u64 offset = take(from, 8);
      return from->bad ? -EINVAL : write_at(h->fd, offset, from->at, (u64)(from->end - from->at));
    }
    case FILE_READ_DIR: return h->is_directory ? read_directory(h) : -ENOTDIR;
    case FILE_STAT_OPEN: return record_of(h->fd, "", AT_EMPTY_PATH, answer_data());
    case FILE_SET_OPEN: {
      Attributes a = take_attributes(from);
      return from->bad ? -EINVAL : set_attributes(h->fd, 0, &a);
    }
  }
  return -ENOSYS;
}

static void handle_files(u32 id, Reader *from) {
  u8 operation = (u8)take(from, 1);
  u32 owner = (u32)take(from, 4);
  if (from->bad) return answer(id, -EINVAL, 0);
  if (operation == FILE_COPY || operation == FILE_REMOVE_DIR) return in_background(id, operation, owner, from);
  long n = operate(operation, owner, from);
  answer(id, n, n > 0 ? (u32)n : 0);
}
