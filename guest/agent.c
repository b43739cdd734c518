/*
 * The agent: runs commands, serves files and opens connections inside a sandbox, for the control plane.
 *
 *   agent            speaks the protocol below on standard input and output
 *   agent --check    exits at once, which shows that the kernel can run it
 *
 * The control plane starts it by an exec of the engine, so it has the namespaces, the control group, the capabilities and
 * the seccomp profile of the sandbox. It never has more. Everything here runs inside the sandbox: no path leads out of it.
 * It ends when its standard input ends, and kills its commands.
 *
 * A frame: length (u32) of the payload, channel (u32), type (u8), payload. Numbers are little-endian. Texts end with NUL.
 * A channel is a command, a file operation or a connection; the control plane chooses its number.
 *
 * Flow control: a command or connection sends output at most until its credit is used up, which the control plane grants with
 * CREDIT. A frame of output costs its payload, and at least FRAME_COST: many small frames fill no memory. A process without credit
 * blocks on its pipe. The control plane sends at most STDIN_ROOM bytes of input that were not acknowledged with CONSUMED.
 *
 * No call may block the agent on something that the sandbox controls: files are opened without blocking, and work that takes long
 * is done by child processes. The program uses no library and nothing of the image. guest/build.sh builds it.
 */
#include "execute.h"
#include <asm/fcntl.h>
#include <asm/ioctls.h>
#include <asm/poll.h>
#include <asm/termbits.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/socket.h>
#include <linux/stat.h>
#include <linux/time.h>
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
#define PING 10
/* Answers. */
#define READY 128 /* with FEATURES (u8), and the environment, each entry with its zero */
#define STARTED 129
#define STDOUT 130 /* also the data of connections */
#define STDERR 131
#define EXITED 132 /* the code (u32), and whether it ran out of memory (u8, oom.h) */
#define FAILED 133
#define CONSUMED 134
#define STDIN_FAILED 135
#define DONE 136 /* of a file operation: errno (u32), data */
#define CONNECTED 137
#define ENDED 138 /* the other end of a connection sends nothing more */
#define CLOSED 139
#define PONG 140

/* The step of a start that failed. */
#define STEP_FORK 1
#define STEP_PTY 2
#define STEP_LIMIT 3
#define STEP_USER 4
#define STEP_CWD 5
#define STEP_EXEC 6
#define STEP_ARGUMENTS 7

#define AT_FDCWD -100
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_REMOVEDIR 0x200
#define AT_EMPTY_PATH 0x1000
#define WNOHANG 1
#define UTIME_OMIT 0x3ffffffe

#include "oom.h"
#include "agent-frames.h"
#include "agent-users.h"

/* The fuzzer has smaller tables, which its inputs fill up. */
#ifndef SMALL_TABLES
#define CHANNELS 256
#define STDIN_ROOM 524288
#define CHUNK 65536
#endif
#define ACKNOWLEDGE 65536 /* fewer acknowledgements make larger, cheaper frames */
#define FRAME_COST 256
#define TICK 50000000 /* nanoseconds */

enum State { FREE, STARTING, RUNNING, WORKING, CONNECTING, OPEN };

typedef struct {
  enum State state;
  u32 id;
  u32 owner; /* of a file operation */
  int pid;   /* 0 when it was reaped, or never was */
  int group; /* the process group, for signals */
  int status;
  long kills_before; /* for lack of memory */
  u8 oom;
  u64 exited_at; /* in milliseconds */
  u64 lingered;  /* bytes of output after the command ended */
  int tty;
  int in; /* -1 when closed; the same as `out` for terminals and connections */
  int out;
  int err;
  int report; /* the read end of the pipe by which a start tells its failure */
  int ending; /* the input ends when its buffer is empty */
  int shut;   /* the input of a connection has ended */
  long credit;
  u32 first, count; /* the input that waits */
  u32 consumed; /* and was not acknowledged */
  u8 *input;
} Channel;

static Channel channels[CHANNELS];
static u8 inputs[CHANNELS][STDIN_ROOM];
static int agent_pid;
/* The directory in which it was started. */
static int first_directory = -1;
static const char *own_home = "/";

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

/* A start that has not made its group yet gets the signal alone. */
static void kill_group(const Channel *c, int signal) {
  if (c->group <= 0) return;
  if (call(__NR_kill, -c->group, signal, 0, 0) == -ESRCH && c->pid > 0) call(__NR_kill, c->pid, signal, 0, 0);
}

static void shut_down(int code) {
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state != FREE) kill_group(&channels[i], SIGKILL);
  leave(code);
}

static long fork_process(void) { return call(__NR_clone, SIGCHLD, 0, 0, 0); }

/* Ends a child with the agent, also when a signal that nobody can handle ends that. */
static void die_with_agent(void) {
  call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
  if (call(__NR_getppid, 0, 0, 0, 0) != agent_pid) leave(1);
}

static u64 now(void) {
  struct __kernel_timespec time = {0, 0};
  call(__NR_clock_gettime, CLOCK_MONOTONIC, &time, 0, 0);
  return (u64)time.tv_sec * 1000 + (u64)time.tv_nsec / 1000000;
}

static void push_input(Channel *c);
static void close_channel(Channel *c);
static void end_stream(Channel *c, int *fd);

#include "agent-commands.h"
#include "agent-connect.h"
#include "agent-files.h"

/* ---- Streams ---- */

static void end_input(Channel *c) {
  c->ending = 0;
  if (c->state == OPEN) return end_sending(c);
  if (!c->tty) return close_fd(&c->in);
  /* The end of the input of a terminal is a character. */
  u8 end = 4;
  if (c->in >= 0) call(__NR_write, c->in, &end, 1, 0);
}

static void push_input(Channel *c) {
  while (c->count > 0 && c->in >= 0) {
    u32 n = c->count;
    if (n > STDIN_ROOM - c->first) n = STDIN_ROOM - c->first;
    long done = call(__NR_write, c->in, c->input + c->first, n, 0);
    if (done == -EAGAIN || done == -EINTR) return;
    if (done < 0 && c->state == OPEN) return fail_connection(c, done);
    if (done < 0) {
      send_number(c->id, STDIN_FAILED, (u32)-done);
      send_number(c->id, CONSUMED, c->consumed + c->count);
      c->consumed = c->count = 0;
      if (!c->tty) close_fd(&c->in);
      return;
    }
    c->first = (c->first + (u32)done) % STDIN_ROOM;
    c->count -= (u32)done;
    c->consumed += (u32)done;
    if (c->consumed < ACKNOWLEDGE && c->count > 0) continue;
    send_number(c->id, CONSUMED, c->consumed);
    c->consumed = 0;
  }
  if (c->count == 0 && c->ending) end_input(c);
}

static void handle_stdin(Channel *c, Reader *from) {
  u32 n = (u32)(from->end - from->at);
  if (n == 0) {
    c->ending = 1;
  } else if ((c->in < 0 && c->state != CONNECTING) || c->shut) {
    /* Input after the end is dropped. */
    return send_number(c->id, CONSUMED, n);
  } else {
    if (n > STDIN_ROOM - c->count) n = STDIN_ROOM - c->count;
    u32 at = (c->first + c->count) % STDIN_ROOM, part = n < STDIN_ROOM - at ? n : STDIN_ROOM - at;
    memcpy(c->input + at, from->at, part);
    memcpy(c->input, from->at + part, n - part);
    c->count += n;
  }
  if (c->state == RUNNING || c->state == OPEN) push_input(c);
}

static void end_stream(Channel *c, int *fd) {
  if (c->state == OPEN) return end_receiving(c);
  if (*fd == c->in) c->in = -1;
  close_fd(fd);
  finish_if_over(c);
}

/* Moves output into a frame. */
static void pull(Channel *c, int *fd, u8 type) {
  long room = c->credit < CHUNK ? c->credit : CHUNK;
  long got = call(__NR_read, *fd, outgoing + HEADER, room, 0);
  if (got == -EAGAIN || got == -EINTR) return;
  if (got < 0 && c->state == OPEN) return fail_connection(c, got);
  if (got <= 0) return end_stream(c, fd);
  c->credit -= got < FRAME_COST ? FRAME_COST : got;
  if (lingers(c)) c->lingered += (u64)got;
  send_outgoing(c->id, type, (u32)got);
}

static void read_report(Channel *c) {
  u8 told[5] = {0};
  long got = call(__NR_read, c->report, told, sizeof told, 0);
  if (got == -EINTR) return;
  close_fd(&c->report);
  u32 error = (u32)(told[1] | told[2] << 8 | told[3] << 16);
  if (c->state == STARTING) return report_start(c, error, told[0]);
  /* Work that tells nothing was killed. */
  answer(c->id, got == sizeof told ? -(long)error : -EIO, 0);
  forget(c);
}

static void close_channel(Channel *c) {
  kill_group(c, SIGKILL);
  enum State was = c->state;
  forget(c);
  if (was == WORKING) answer(c->id, -ECANCELED, 0);
  else if (was == STARTING || was == RUNNING) send_exit(c->id, 128 + SIGKILL, (u8)oom_killed(128 + SIGKILL, c->kills_before));
  else send_outgoing(c->id, CLOSED, 0);
}

/* ---- Requests ---- */

static void handle(u32 id, u8 type, u8 *payload, u32 n) {
  Reader from = {payload, payload + n, 0};
  switch (type) {
    case EXEC: return handle_exec(id, &from);
    case FILES: return handle_files(id, &from);
    case CONNECT: return handle_connect(id, &from);
    case END_OWNER: return end_owner(id);
    case PING: return send_outgoing(id, PONG, 0);
  }
  Channel *c = find(id);
  if (!c) return;
  switch (type) {
    case STDIN: return handle_stdin(c, &from);
    case CREDIT: c->credit += (long)take(&from, 4); return;
    case CLOSE: return close_channel(c);
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

static u8 frame[HEADER + FRAME_ROOM];
/* The bytes of `frame` that are not handled yet. */
static u32 has;

/* Reads what there is and handles each frame that is whole. Returns 0 at the end of the input. */
static int read_frames(void) {
  long got = call(__NR_read, 0, frame + has, sizeof frame - has, 0);
  if (got == -EINTR || got == -EAGAIN) return 1;
  if (got <= 0) return 0;
  has += (u32)got;
  u32 at = 0;
  while (has - at >= HEADER) {
    Reader head = {frame + at, frame + at + HEADER, 0};
    u32 n = (u32)take(&head, 4), id = (u32)take(&head, 4);
    u8 type = (u8)take(&head, 1);
    if (n > FRAME_ROOM) return 0;
    if (has - at < HEADER + n) break;
    handle(id, type, frame + at + HEADER, n);
    at += HEADER + n;
  }
  if (at > 0) move_down(frame, frame + at, has - at);
  has -= at;
  return 1;
}

/* ---- The loop ---- */

static void ignore(int signal) { (void)signal; }

/* The only effect of SIGCHLD is to interrupt ppoll. */
static void wake_on_exit(void) {
  struct {
    void (*handler)(int);
    u64 flags;
#if defined(__x86_64__)
    void (*restorer)(void);
#endif
    u64 mask;
  } action = {.handler = ignore};
#if defined(__x86_64__)
  extern void restore_signal(void);
  action.flags = 0x04000000;
  action.restorer = restore_signal;
#endif
  call(__NR_rt_sigaction, SIGCHLD, &action, 0, sizeof action.mask);
}

enum Part { INPUT_ONLY, OUTPUT, ERRORS, REPORT };

/* No descriptor is polled twice: the kernel refuses more entries than a process may have descriptors. */
static struct pollfd polled[1 + CHANNELS * 4];
static struct {
  Channel *channel;
  enum Part part;
} owners[1 + CHANNELS * 4];
static int polled_count;

static void add(Channel *c, enum Part part, int fd, short events) {
  if (fd < 0 || !events) return;
  owners[polled_count].channel = c;
  owners[polled_count].part = part;
  polled[polled_count++] = (struct pollfd){fd, events, 0};
}

static void add_channel(Channel *c) {
  add(c, REPORT, c->report, POLLIN);
  if (c->state == CONNECTING) add(c, INPUT_ONLY, c->in, POLLOUT);
  if (c->state != RUNNING && c->state != OPEN) return;
  short in = c->count > 0 ? POLLOUT : 0, out = c->credit > 0 ? POLLIN : 0;
  if (c->in != c->out) add(c, INPUT_ONLY, c->in, in);
  add(c, OUTPUT, c->out, c->in == c->out ? in | out : out);
  add(c, ERRORS, c->err, out);
}

/* An earlier part may have ended the channel, or have made another of it. */
static int is_current(const Channel *c, enum Part part, int fd) {
  if (c->state == FREE) return 0;
  return fd == (part == REPORT ? c->report : part == ERRORS ? c->err : part == OUTPUT ? c->out : c->in);
}

static void serve(Channel *c, enum Part part, int fd, short events) {
  if (!is_current(c, part, fd)) return;
  int *stream = part == OUTPUT ? &c->out : &c->err;
  switch (part) {
    case REPORT:
      if (events) read_report(c);
      return;
    case INPUT_ONLY:
      if (!events) return;
      if (c->state == CONNECTING) finish_connect(c);
      else push_input(c);
      return;
    case OUTPUT:
    case ERRORS:
      if (part == OUTPUT && c->in == c->out && c->count > 0 && events & ~POLLIN) push_input(c);
      if (!is_current(c, part, fd)) return;
      if (c->credit > 0 && events & ~POLLOUT) pull(c, stream, part == OUTPUT ? STDOUT : STDERR);
      if (is_current(c, part, fd)) end_lingering(c, stream, events & POLLIN);
  }
}

/* With the environment, for engines that do not show that of an image: /proc/self/environ is closed to a user other than root. */
static void send_ready(char **environment) {
  u32 n = 0;
  outgoing[HEADER + n++] = FEATURES;
  for (; *environment; environment++) {
    u32 before = n;
    const char *c = *environment;
    do {
      if (n == FRAME_ROOM) return send_outgoing(0, READY, before);
      outgoing[HEADER + n++] = (u8)*c;
    } while (*c++);
  }
  send_outgoing(0, READY, n);
}

__attribute__((used, noreturn)) static void start(long *stack) {
  char **argv = (char **)(stack + 1);
  if (stack[0] > 1 && same(argv[1], "--check", 8)) leave(0);
  /* Closes its memory and its descriptors to the processes of the sandbox: nobody else writes to the pipes of the engine, which reads
     without a limit, or reads the requests of others. The programs that it starts get their own back. */
  call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
  for (int i = 0; i < HANDLES; i++) handles[i].fd = -1;
  const char *home = value_of(argv + stack[0] + 1, "HOME=");
  if (home && home[0]) own_home = home;
  agent_pid = (int)call(__NR_getpid, 0, 0, 0, 0);
  /* A broken pipe and a file that may grow no more are answers of `write`. */
  u64 unblocked = 1UL << (SIGPIPE - 1) | 1UL << (SIGXFSZ - 1), blocked = unblocked | 1UL << (SIGCHLD - 1);
  call(__NR_rt_sigprocmask, SIG_SETMASK, &blocked, 0, sizeof blocked);
  wake_on_exit();
  open_oom_counts();
  first_directory = (int)call(__NR_openat, AT_FDCWD, ".", O_PATH | O_CLOEXEC, 0);
  call(__NR_chdir, "/", 0, 0, 0);
  send_ready(argv + stack[0] + 1);
  for (;;) {
    int has_lingering = 0;
    polled_count = 0;
    add(0, REPORT, 0, POLLIN);
    for (int i = 0; i < CHANNELS; i++) {
      if (channels[i].state == FREE) continue;
      add_channel(&channels[i]);
      has_lingering |= lingers(&channels[i]);
    }
    struct __kernel_timespec tick = {0, TICK};
    long ready = call6(__NR_ppoll, (long)polled, polled_count, has_lingering ? (long)&tick : 0, (long)&unblocked, 8, 0);
    if (ready < 0 && ready != -EINTR && ready != -ENOMEM) shut_down(1);
    reap();
    if (ready < 0 || (ready == 0 && !has_lingering)) continue;
    for (int i = 1; i < polled_count; i++) serve(owners[i].channel, owners[i].part, polled[i].fd, polled[i].revents);
    if (polled[0].revents && !read_frames()) shut_down(0);
  }
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n  xor %ebp, %ebp\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call start\n");
__asm__(".globl restore_signal\nrestore_signal:\n  mov $15, %eax\n  syscall\n");
#else
__asm__(".globl _start\n_start:\n  mov x29, #0\n  mov x0, sp\n  bl start\n");
#endif
