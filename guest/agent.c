/*
 * The agent: runs commands, serves files and opens connections inside a sandbox, for the control plane.
 *
 *   agent            speaks the protocol below on standard input and output
 *
 * The control plane starts it by an exec of the engine, so it has the namespaces, the control group, the capabilities and
 * the seccomp profile of the sandbox. It never has more. Everything here runs inside the sandbox: no path leads out of it.
 * It ends when its standard input ends, and kills its commands.
 *
 * A frame: length (u32) of the payload, channel (u32), type (u8), payload. Numbers are little-endian. Texts end with NUL.
 * A channel is a command, a file operation or a connection; the control plane chooses its number.
 *
 * Flow control: a command or connection sends at most its credit, which the control plane grants with CREDIT. The control
 * plane sends at most STDIN_ROOM bytes of input that were not acknowledged with CONSUMED.
 *
 * The program uses no library and nothing of the image. guest/build.sh builds it.
 */
#include "kernel.h"
#include <asm/fcntl.h>
#include <asm/ioctls.h>
#include <asm/poll.h>
#include <asm/termbits.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/resource.h>
#include <linux/socket.h>
#include <linux/stat.h>
#include <linux/time_types.h>

/* Requests. */
#define EXEC 1
#define STDIN 2 /* without data: the end */
#define RESIZE 3
#define SIGNAL 4
#define CREDIT 5
#define CLOSE 6
#define FILES 7
#define END_OWNER 8
#define CONNECT 9
/* Answers. */
#define READY 128
#define STARTED 129
#define STDOUT 130 /* also the data of files and connections */
#define STDERR 131
#define EXITED 132
#define FAILED 133
#define CONSUMED 134
#define STDIN_FAILED 135
#define DONE 136 /* of a file operation: errno (u32), data */
#define CONNECTED 137
#define ENDED 138 /* the other end of a connection sends nothing more */
#define CLOSED 139

/* The step of a start that failed. */
#define STEP_FORK 1
#define STEP_PTY 2
#define STEP_LIMIT 3
#define STEP_USER 4
#define STEP_CWD 5
#define STEP_EXEC 6
#define STEP_ARGUMENTS 7

#define CHANNELS 256
#define HANDLES 4096
#define STDIN_ROOM 65536
#define FRAME_ROOM 262144
#define HEADER 9
#define CHUNK 32768
#define PATH_ROOM 4097
#define ARGUMENTS_MAX 16384

#define AT_FDCWD -100
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_REMOVEDIR 0x200
#define AT_EMPTY_PATH 0x1000
#define STATX_BASIC 0x7ff
#define WNOHANG 1
#define UTIME_OMIT 0x3ffffffe
#define TIOCGPTPEER_ 0x5441
#define SOL_SOCKET_ 1
#define SO_ERROR_ 4
#define SHUT_WR 1
#define S_KIND 0170000
#define S_DIR 0040000
#define S_LINK 0120000
#define S_REGULAR 0100000

typedef struct {
  u8 *at;
  u8 *end;
  int bad;
} Reader;

enum State { FREE, STARTING, RUNNING, WORKING, CONNECTING, OPEN };

typedef struct {
  enum State state;
  u32 id;
  int pid;   /* 0 when it was reaped, or never was */
  int group; /* the process group, for signals */
  int status;
  int tty;
  int in;    /* -1 when closed */
  int out;
  int err;
  int report; /* the read end of the pipe by which a start tells its failure */
  int ending; /* the input ends when its buffer is empty */
  u64 credit;
  u32 first, count; /* the input that waits */
  u8 *input;
} Channel;

typedef struct {
  int fd; /* -1 when free */
  u32 owner;
  int is_directory;
} Handle;

static Channel channels[CHANNELS];
static u8 inputs[CHANNELS][STDIN_ROOM];
static Handle handles[HANDLES];
static u8 frame[FRAME_ROOM + HEADER];
static u32 frame_has;
static u8 outgoing[FRAME_ROOM + HEADER];
static char **own_environment;

/* ---- Output ---- */

static void write_all(int fd, const u8 *from, u64 n) {
  while (n > 0) {
    long done = call(__NR_write, fd, from, n, 0);
    if (done == -EINTR) continue;
    if (done == -EAGAIN) {
      struct pollfd room = {fd, POLLOUT, 0};
      call6(__NR_ppoll, (long)&room, 1, 0, 0, 0, 0);
      continue;
    }
    if (done < 0) leave(1);
    from += done;
    n -= done;
  }
}

static void put32(u8 *to, u32 value) {
  for (int i = 0; i < 4; i++) to[i] = (u8)(value >> (8 * i));
}

static void put64(u8 *to, u64 value) {
  for (int i = 0; i < 8; i++) to[i] = (u8)(value >> (8 * i));
}

/* Sends the payload that was written behind the header of `outgoing`. */
static void send_outgoing(u32 id, u8 type, u32 n) {
  put32(outgoing, n);
  put32(outgoing + 4, id);
  outgoing[8] = type;
  write_all(1, outgoing, HEADER + n);
}

static void send_number(u32 id, u8 type, u32 value) {
  put32(outgoing + HEADER, value);
  send_outgoing(id, type, 4);
}

static void send_failure(u32 id, u8 step, long error) {
  outgoing[HEADER] = step;
  put32(outgoing + HEADER + 1, (u32)-error);
  send_outgoing(id, FAILED, 5);
}

/* ---- Input ---- */

static u64 take(Reader *from, int bytes) {
  u64 value = 0;
  if (from->end - from->at < bytes) {
    from->bad = 1;
    return 0;
  }
  for (int i = 0; i < bytes; i++) value |= (u64)*from->at++ << (8 * i);
  return value;
}

/* A text within the frame; it ends with NUL. */
static char *take_text(Reader *from) {
  char *text = (char *)from->at;
  while (from->at < from->end)
    if (*from->at++ == 0) return text;
  from->bad = 1;
  return "";
}

static Channel *find(u32 id) {
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state != FREE && channels[i].id == id) return &channels[i];
  return 0;
}

static Channel *make(u32 id) {
  if (find(id)) return 0;
  for (int i = 0; i < CHANNELS; i++) {
    if (channels[i].state != FREE) continue;
    channels[i] = (Channel){.id = id, .in = -1, .out = -1, .err = -1, .report = -1, .input = inputs[i]};
    return &channels[i];
  }
  return 0;
}

static void close_fd(int *fd) {
  if (*fd >= 0) call(__NR_close, *fd, 0, 0, 0);
  *fd = -1;
}

static void forget(Channel *c) {
  if (c->out == c->in) c->out = -1;
  close_fd(&c->in);
  close_fd(&c->out);
  close_fd(&c->err);
  close_fd(&c->report);
  c->state = FREE;
}

/* ---- Users ---- */

static u8 database[1 << 20];

/* Reads a whole file, as far as there is room. Returns its length, 0 when there is none. */
static u64 slurp(const char *path) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (fd < 0) return 0;
  u64 n = 0;
  long got;
  while (n < sizeof database && (got = call(__NR_read, fd, database + n, sizeof database - n, 0)) > 0) n += got;
  call(__NR_close, fd, 0, 0, 0);
  return n;
}

static int number_of(const char *text, u64 n, u32 *value) {
  u64 sum = 0;
  if (n == 0 || n > 10) return 0;
  for (u64 i = 0; i < n; i++) {
    if (text[i] < '0' || text[i] > '9') return 0;
    sum = sum * 10 + (u64)(text[i] - '0');
  }
  if (sum > 0xfffffffe) return 0;
  *value = (u32)sum;
  return 1;
}

/* The field of a line that colons separate. */
static char *field(char *line, char *end, int index, u64 *n) {
  char *start = line;
  for (; index > 0 && start < end; start++)
    if (*start == ':') index--;
  if (index > 0) {
    *n = 0;
    return end;
  }
  char *stop = start;
  while (stop < end && *stop != ':') stop++;
  *n = (u64)(stop - start);
  return start;
}

typedef struct {
  u32 uid, gid;
  u32 groups[64];
  int group_count;
  char name[256];
  char home[PATH_ROOM];
} User;

static void copy_text(char *to, u64 room, const char *from, u64 n) {
  if (n >= room) n = room - 1;
  memcpy(to, from, n);
  to[n] = 0;
}

/* Reads `name`, `uid`, `name:group` or `uid:gid`. Returns 0, or a negative errno. */
static long find_user(const char *text, User *user) {
  u64 n = 0;
  while (text[n] && text[n] != ':') n++;
  const char *group = text[n] ? text + n + 1 : 0;
  int known = number_of(text, n, &user->uid);
  int numeric = known;
  user->gid = 0;
  user->group_count = 0;
  user->name[0] = 0;
  copy_text(user->home, sizeof user->home, "/", 1);
  u64 size = slurp("/etc/passwd");
  char *line = (char *)database, *all = line + size;
  while (line < all) {
    char *end = line;
    while (end < all && *end != '\n') end++;
    u64 name_n, uid_n, gid_n, home_n;
    char *name = field(line, end, 0, &name_n), *uid = field(line, end, 2, &uid_n);
    char *gid = field(line, end, 3, &gid_n), *home = field(line, end, 5, &home_n);
    u32 uid_value, gid_value;
    if (number_of(uid, uid_n, &uid_value) && number_of(gid, gid_n, &gid_value)) {
      int match = numeric ? uid_value == user->uid : name_n == n && same(name, text, n);
      if (match) {
        user->uid = uid_value;
        user->gid = gid_value;
        copy_text(user->name, sizeof user->name, name, name_n);
        if (home_n > 0) copy_text(user->home, sizeof user->home, home, home_n);
        known = 1;
        break;
      }
    }
    line = end + 1;
  }
  /* Images without /etc/passwd have a root too. */
  if (!known && n == 4 && same(text, "root", 4)) {
    user->uid = 0;
    copy_text(user->home, sizeof user->home, "/root", 5);
    known = 1;
  }
  if (!known) return -ENOENT;
  u64 group_n = group ? length(group) : 0;
  int group_known = group ? number_of(group, group_n, &user->gid) : 1;
  u64 name_n = length(user->name);
  size = slurp("/etc/group");
  line = (char *)database, all = line + size;
  while (line < all) {
    char *end = line;
    while (end < all && *end != '\n') end++;
    u64 own_n, gid_n, members_n;
    char *own = field(line, end, 0, &own_n), *gid = field(line, end, 2, &gid_n);
    char *members = field(line, end, 3, &members_n);
    u32 value;
    if (number_of(gid, gid_n, &value)) {
      if (!group_known && own_n == group_n && same(own, group, own_n)) {
        user->gid = value;
        group_known = 1;
      }
      char *member = members, *members_end = members + members_n;
      while (!group && name_n > 0 && member < members_end) {
        char *stop = member;
        while (stop < members_end && *stop != ',') stop++;
        if ((u64)(stop - member) == name_n && same(member, user->name, name_n) && user->group_count < 64)
          user->groups[user->group_count++] = value;
        member = stop + 1;
      }
    }
    line = end + 1;
  }
  if (!group_known && group_n == 4 && same(group, "root", 4)) {
    user->gid = 0;
    group_known = 1;
  }
  return group_known ? 0 : -ENOENT;
}

/* ---- Commands ---- */

static const char *value_of(char **environment, const char *name) {
  u64 n = length(name);
  const char *found = 0;
  for (; *environment; environment++)
    if (same(*environment, name, n)) found = *environment + n;
  return found;
}

/* Looks a name without a slash up in PATH. Returns only on failure. */
static long execute(char **command, char **environment) {
  const char *name = command[0];
  for (const char *c = name; *c; c++)
    if (*c == '/') return call(__NR_execve, name, command, environment, 0);
  const char *path = value_of(environment, "PATH=");
  if (!path) path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  long error = -ENOENT;
  char file[PATH_ROOM];
  while (*name) {
    u64 n = 0;
    while (*path && *path != ':' && n < PATH_ROOM - 2) file[n++] = *path++;
    while (*path && *path != ':') path++;
    if (n == 0) file[n++] = '.';
    file[n++] = '/';
    const char *c = name;
    while (*c && n < PATH_ROOM - 1) file[n++] = *c++;
    file[n] = 0;
    if (!*c) {
      long failed = call(__NR_execve, file, command, environment, 0);
      if (failed != -ENOENT && failed != -ENOTDIR) error = failed;
    }
    if (!*path++) break;
  }
  return error;
}

static void give_up(int report, u8 step, long error) {
  u8 told[5] = {step};
  put32(told + 1, (u32)-error);
  call(__NR_write, report, told, 5, 0);
  leave(127);
}

typedef struct {
  u8 resource;
  struct rlimit64 value;
} Limit;

typedef struct {
  int tty;
  u16 rows, cols;
  int limit_count;
  Limit limits[32];
  char *user;
  char *cwd;
  char **argv;
  char **environment;
} Command;

static void become(int report, const Command *command, char **environment) {
  static User user;
  call(__NR_setsid, 0, 0, 0, 0);
  u64 none = 0;
  call(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
  for (int i = 0; i < command->limit_count; i++) {
    long failed = call(__NR_prlimit64, 0, command->limits[i].resource, &command->limits[i].value, 0);
    if (failed < 0) give_up(report, STEP_LIMIT, failed);
  }
  char home[PATH_ROOM + 8] = "HOME=/";
  if (command->user[0]) {
    long failed = find_user(command->user, &user);
    if (failed < 0) give_up(report, STEP_USER, failed);
    copy_text(home + 5, sizeof home - 5, user.home, length(user.home));
    if ((u32)call(__NR_geteuid, 0, 0, 0, 0) != user.uid || call(__NR_geteuid, 0, 0, 0, 0) == 0) {
      failed = call(__NR_setgroups, user.group_count, user.groups, 0, 0);
      /* Without the capability the groups can stay only when nothing else changes. */
      int unchanged = (u32)call(__NR_geteuid, 0, 0, 0, 0) == user.uid && (u32)call(__NR_getegid, 0, 0, 0, 0) == user.gid;
      if (failed < 0 && !unchanged) give_up(report, STEP_USER, failed);
      if ((failed = call(__NR_setresgid, user.gid, user.gid, user.gid, 0)) < 0) give_up(report, STEP_USER, failed);
      if ((failed = call(__NR_setresuid, user.uid, user.uid, user.uid, 0)) < 0) give_up(report, STEP_USER, failed);
    }
  }
  if (command->cwd[0]) {
    long failed = call(__NR_chdir, command->cwd, 0, 0, 0);
    if (failed < 0) give_up(report, STEP_CWD, failed);
  }
  if (!value_of(environment, "HOME=")) {
    char **last = environment;
    while (*last) last++;
    last[0] = home;
    last[1] = 0;
  }
  give_up(report, STEP_EXEC, execute(command->argv, environment));
}

static long open_pty(const Command *command, int *peer) {
  long master = call(__NR_openat, AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
  if (master < 0) return master;
  int unlock = 0;
  call(__NR_ioctl, master, TIOCSPTLCK, &unlock, 0);
  long slave = call(__NR_ioctl, master, TIOCGPTPEER_, O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
  if (slave < 0) {
    call(__NR_close, master, 0, 0, 0);
    return slave;
  }
  u16 size[4] = {command->rows, command->cols, 0, 0};
  call(__NR_ioctl, master, TIOCSWINSZ, size, 0);
  *peer = (int)slave;
  return master;
}

static long set_nonblocking(int fd) {
  long flags = call(__NR_fcntl, fd, F_GETFL, 0, 0);
  return call(__NR_fcntl, fd, F_SETFL, flags | O_NONBLOCK, 0);
}

static long fork_process(void) { return call(__NR_clone, SIGCHLD, 0, 0, 0); }

static void start_command(Channel *c, const Command *command, char **environment) {
  int report[2], in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  int slave = -1;
  long master = -1, failed = call(__NR_pipe2, report, O_CLOEXEC, 0, 0);
  u8 step = STEP_FORK;
  if (failed < 0) goto fail;
  if (command->tty) {
    step = STEP_PTY;
    master = failed = open_pty(command, &slave);
    if (failed < 0) goto fail;
    if (command->user[0]) {
      static User user;
      if (find_user(command->user, &user) == 0) call(__NR_fchown, slave, user.uid, user.gid, 0);
    }
  } else {
    if ((failed = call(__NR_pipe2, in, O_CLOEXEC, 0, 0)) < 0) goto fail;
    if ((failed = call(__NR_pipe2, out, O_CLOEXEC, 0, 0)) < 0) goto fail;
    if ((failed = call(__NR_pipe2, err, O_CLOEXEC, 0, 0)) < 0) goto fail;
  }
  step = STEP_FORK;
  long pid = failed = fork_process();
  if (failed < 0) goto fail;
  if (pid == 0) {
    call(__NR_setsid, 0, 0, 0, 0);
    if (command->tty) call(__NR_ioctl, slave, TIOCSCTTY, 0, 0);
    call(__NR_dup3, command->tty ? slave : in[0], 0, 0, 0);
    call(__NR_dup3, command->tty ? slave : out[1], 1, 0, 0);
    call(__NR_dup3, command->tty ? slave : err[1], 2, 0, 0);
    become(report[1], command, environment);
  }
  c->state = STARTING;
  c->pid = c->group = (int)pid;
  c->tty = command->tty;
  c->report = report[0];
  close_fd(&report[1]);
  if (command->tty) {
    call(__NR_close, slave, 0, 0, 0);
    c->in = c->out = (int)master;
  } else {
    close_fd(&in[0]);
    close_fd(&out[1]);
    close_fd(&err[1]);
    c->in = in[1];
    c->out = out[0];
    c->err = err[0];
    set_nonblocking(c->err);
  }
  set_nonblocking(c->in);
  set_nonblocking(c->out);
  return;
fail:
  send_failure(c->id, step, failed);
  for (int i = 0; i < 2; i++) {
    close_fd(&in[i]);
    close_fd(&out[i]);
    close_fd(&err[i]);
    if (step != STEP_FORK || master >= 0 || in[0] >= 0) close_fd(&report[i]);
  }
  if (master >= 0) {
    int fd = (int)master;
    close_fd(&fd);
    close_fd(&slave);
  }
  forget(c);
}

static char *argument_space[ARGUMENTS_MAX + 4];

static void handle_exec(u32 id, Reader *from) {
  Channel *c = make(id);
  if (!c) {
    send_failure(id, STEP_FORK, -EAGAIN);
    return;
  }
  static Command command;
  command.tty = (int)take(from, 1);
  command.rows = (u16)take(from, 2);
  command.cols = (u16)take(from, 2);
  c->credit = take(from, 4);
  u32 argc = (u32)take(from, 2), envc = (u32)take(from, 2);
  command.limit_count = (int)take(from, 1);
  if (argc == 0 || argc + envc > ARGUMENTS_MAX || command.limit_count > 32) from->bad = 1;
  for (int i = 0; !from->bad && i < command.limit_count; i++) {
    command.limits[i].resource = (u8)take(from, 1);
    command.limits[i].value.rlim_cur = take(from, 8);
    command.limits[i].value.rlim_max = take(from, 8);
  }
  command.user = take_text(from);
  command.cwd = take_text(from);
  char **slot = argument_space;
  command.argv = slot;
  for (u32 i = 0; !from->bad && i < argc; i++) *slot++ = take_text(from);
  *slot++ = 0;
  command.environment = slot;
  for (u32 i = 0; !from->bad && i < envc; i++) *slot++ = take_text(from);
  *slot++ = 0;
  if (from->bad) {
    send_failure(id, STEP_ARGUMENTS, -EINVAL);
    forget(c);
    return;
  }
  start_command(c, &command, command.environment);
}

static void kill_group(const Channel *c, int signal) {
  if (c->group > 0) call(__NR_kill, -c->group, signal, 0, 0);
}

static void close_input(Channel *c) {
  if (c->in >= 0 && c->tty) {
    /* The end of input of a terminal is a character. */
    u8 end = 4;
    call(__NR_write, c->in, &end, 1, 0);
    c->ending = 0;
    return;
  }
  if (c->state == OPEN) {
    call(__NR_shutdown, c->in, SHUT_WR, 0, 0);
    c->ending = 0;
    return;
  }
  close_fd(&c->in);
  c->ending = 0;
}

static void push_input(Channel *c) {
  while (c->count > 0 && c->in >= 0) {
    u32 n = c->count;
    if (n > STDIN_ROOM - c->first) n = STDIN_ROOM - c->first;
    long done = call(__NR_write, c->in, c->input + c->first, n, 0);
    if (done == -EAGAIN || done == -EINTR) return;
    if (done < 0) {
      send_number(c->id, STDIN_FAILED, (u32)-done);
      send_number(c->id, CONSUMED, c->count);
      c->count = 0;
      if (c->state != OPEN && !c->tty) close_fd(&c->in);
      return;
    }
    c->first = (c->first + (u32)done) % STDIN_ROOM;
    c->count -= (u32)done;
    send_number(c->id, CONSUMED, (u32)done);
  }
  if (c->count == 0 && c->ending) close_input(c);
}

static void handle_stdin(Channel *c, Reader *from) {
  u32 n = (u32)(from->end - from->at);
  if (n == 0) {
    c->ending = 1;
  } else if (c->in < 0 && c->state != STARTING && c->state != CONNECTING) {
    /* Input after the end of the command is dropped. */
    send_number(c->id, CONSUMED, n);
    return;
  } else {
    if (n > STDIN_ROOM - c->count) n = STDIN_ROOM - c->count;
    for (u32 i = 0; i < n; i++) c->input[(c->first + c->count + i) % STDIN_ROOM] = from->at[i];
    c->count += n;
  }
  if (c->state == RUNNING || c->state == OPEN) push_input(c);
}

/* Moves what a command wrote into a frame. Returns 0 at the end of its output. */
static int pull(Channel *c, int fd, u8 type) {
  u64 room = c->credit < CHUNK ? c->credit : CHUNK;
  long got = call(__NR_read, fd, outgoing + HEADER, room, 0);
  if (got == -EAGAIN || got == -EINTR) return 1;
  if (got <= 0) return 0;
  c->credit -= (u64)got;
  send_outgoing(c->id, type, (u32)got);
  return 1;
}

static void finish_if_over(Channel *c) {
  if (c->state == RUNNING && c->pid == 0 && c->out < 0 && c->err < 0) {
    send_number(c->id, EXITED, (u32)c->status);
    if (c->in >= 0 && c->tty) close_fd(&c->in);
    forget(c);
  }
}

static void read_report(Channel *c) {
  u8 told[5];
  long got = call(__NR_read, c->report, told, 5, 0);
  if (got == -EINTR) return;
  close_fd(&c->report);
  if (c->state == WORKING) {
    outgoing[HEADER] = 0;
    put32(outgoing + HEADER, got == 5 ? (u32)(told[1] | told[2] << 8 | told[3] << 16) : EIO);
    send_outgoing(c->id, DONE, 4);
    c->group = 0;
    forget(c);
    return;
  }
  if (got == 5) {
    send_failure(c->id, told[0], -(long)(told[1] | told[2] << 8 | told[3] << 16));
    c->group = 0;
    forget(c);
    return;
  }
  c->state = RUNNING;
  send_number(c->id, STARTED, (u32)c->group);
  push_input(c);
}

static void reap(void) {
  int status;
  long ended;
  while ((ended = call(__NR_wait4, -1, &status, WNOHANG, 0)) > 0) {
    for (int i = 0; i < CHANNELS; i++) {
      Channel *c = &channels[i];
      if (c->state == FREE || c->pid != (int)ended) continue;
      int signal = status & 0x7f;
      c->status = signal ? 128 + signal : (status >> 8) & 0xff;
      c->pid = 0;
      finish_if_over(c);
    }
  }
}

static void handle_close(Channel *c) {
  if (c->state == WORKING) {
    kill_group(c, SIGKILL);
    forget(c);
    return;
  }
  kill_group(c, SIGKILL);
  int was_command = c->state == STARTING || c->state == RUNNING;
  u32 id = c->id;
  forget(c);
  if (was_command) send_number(id, EXITED, 128 + SIGKILL);
  else send_number(id, CLOSED, 0);
}

#include "agent-files.h"
#include "agent-connect.h"

static void handle(u32 id, u8 type, u8 *payload, u32 n) {
  Reader from = {payload, payload + n, 0};
  if (type == EXEC) return handle_exec(id, &from);
  if (type == FILES) return handle_files(id, &from);
  if (type == CONNECT) return handle_connect(id, &from);
  if (type == END_OWNER) return close_handles(id);
  Channel *c = find(id);
  if (!c) return;
  switch (type) {
    case STDIN: return handle_stdin(c, &from);
    case CREDIT: c->credit += take(&from, 4); return;
    case CLOSE: return handle_close(c);
    case SIGNAL: {
      u8 signal = (u8)take(&from, 1);
      if (!from.bad && signal >= 1 && signal <= 64) kill_group(c, signal);
      return;
    }
    case RESIZE: {
      u16 rows = (u16)take(&from, 2), cols = (u16)take(&from, 2);
      u16 size[4] = {rows, cols, 0, 0};
      if (!from.bad && c->tty && c->in >= 0) call(__NR_ioctl, c->in, TIOCSWINSZ, size, 0);
      return;
    }
  }
}

/* Reads what there is and handles each frame that is whole. Returns 0 at the end of the input. */
static int read_frames(void) {
  long got = call(__NR_read, 0, frame + frame_has, sizeof frame - frame_has, 0);
  if (got == -EINTR || got == -EAGAIN) return 1;
  if (got <= 0) return 0;
  frame_has += (u32)got;
  u32 at = 0;
  while (frame_has - at >= HEADER) {
    Reader head = {frame + at, frame + at + HEADER, 0};
    u32 n = (u32)take(&head, 4), id = (u32)take(&head, 4);
    u8 type = (u8)take(&head, 1);
    if (n > FRAME_ROOM) return 0;
    if (frame_has - at < HEADER + n) break;
    handle(id, type, frame + at + HEADER, n);
    at += HEADER + n;
  }
  for (u32 i = at; i < frame_has; i++) frame[i - at] = frame[i];
  frame_has -= at;
  return 1;
}

static void ignore(int signal) { (void)signal; }

/* Its only effect is to interrupt ppoll. */
static void wake_on_exit(void) {
  struct {
    void (*handler)(int);
    u64 flags;
    void (*restorer)(void);
    u64 mask;
  } action = {ignore, 0, 0, 0};
#if defined(__x86_64__)
  extern void restore_signal(void);
  action.flags = 0x04000000;
  action.restorer = restore_signal;
#else
  /* The kernel's structure has no restorer there. */
  struct {
    void (*handler)(int);
    u64 flags;
    u64 mask;
  } plain = {ignore, 0, 0};
  call(__NR_rt_sigaction, SIGCHLD, &plain, 0, sizeof plain.mask);
  return;
#endif
  call(__NR_rt_sigaction, SIGCHLD, &action, 0, sizeof action.mask);
}

static struct pollfd polled[1 + CHANNELS * 4];
static struct {
  Channel *channel;
  int part;
} owners[1 + CHANNELS * 4];

__attribute__((used, noreturn)) static void start(long *stack) {
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  own_environment = argv + argc + 1;
  if (argc > 1 && same(argv[1], "--check", 8)) leave(0);
  for (int i = 0; i < HANDLES; i++) handles[i].fd = -1;
  u64 blocked = 1UL << (SIGCHLD - 1) | 1UL << (SIGPIPE - 1), none = 1UL << (SIGPIPE - 1);
  call(__NR_rt_sigprocmask, SIG_SETMASK, &blocked, 0, sizeof blocked);
  wake_on_exit();
  call(__NR_chdir, "/", 0, 0, 0);
  send_outgoing(0, READY, 0);
  for (;;) {
    int n = 0;
    polled[n] = (struct pollfd){0, POLLIN, 0};
    owners[n++].channel = 0;
    for (int i = 0; i < CHANNELS; i++) {
      Channel *c = &channels[i];
      if (c->state == FREE) continue;
      if (c->report >= 0) {
        owners[n].channel = c, owners[n].part = 0;
        polled[n++] = (struct pollfd){c->report, POLLIN, 0};
      }
      int flows = c->state == RUNNING || c->state == OPEN;
      if (flows && c->out >= 0 && c->credit > 0) {
        owners[n].channel = c, owners[n].part = 1;
        polled[n++] = (struct pollfd){c->out, POLLIN, 0};
      }
      if (flows && c->err >= 0 && c->credit > 0) {
        owners[n].channel = c, owners[n].part = 2;
        polled[n++] = (struct pollfd){c->err, POLLIN, 0};
      }
      if ((flows && c->in >= 0 && c->count > 0) || c->state == CONNECTING) {
        owners[n].channel = c, owners[n].part = 3;
        polled[n++] = (struct pollfd){c->in, POLLOUT, 0};
      }
    }
    long ready = call6(__NR_ppoll, (long)polled, n, 0, (long)&none, sizeof none, 0);
    reap();
    if (ready <= 0) continue;
    for (int i = 1; i < n; i++) {
      Channel *c = owners[i].channel;
      if (!polled[i].revents || c->state == FREE) continue;
      switch (owners[i].part) {
        case 0:
          if (c->report == polled[i].fd) read_report(c);
          break;
        case 1:
          if (c->out == polled[i].fd && c->credit > 0 && !pull(c, c->out, STDOUT)) end_of_output(c);
          break;
        case 2:
          if (c->err == polled[i].fd && c->credit > 0 && !pull(c, c->err, STDERR)) {
            close_fd(&c->err);
            finish_if_over(c);
          }
          break;
        case 3:
          if (c->in != polled[i].fd) break;
          if (c->state == CONNECTING) finish_connect(c);
          else push_input(c);
      }
    }
    if (polled[0].revents && !read_frames()) break;
  }
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state != FREE) kill_group(&channels[i], SIGKILL);
  leave(0);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n  xor %ebp, %ebp\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call start\n");
__asm__(".globl restore_signal\nrestore_signal:\n  mov $15, %eax\n  syscall\n");
#else
__asm__(".globl _start\n_start:\n  mov x29, #0\n  mov x0, sp\n  bl start\n");
#endif
