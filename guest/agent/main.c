/*
 * The agent: runs commands, serves files and opens connections inside a sandbox, for the control plane.
 *
 *   agent            speaks the protocol of protocol.h on standard input and output
 *   agent --check    exits at once, which shows that the kernel can run it
 *
 * The control plane starts it by an exec of the engine, so it has the namespaces, the control group, the capabilities
 * and the seccomp profile of the sandbox. It never has more. Everything here runs inside the sandbox: no path leads out
 * of it. It ends when its standard input ends, and kills its commands.
 *
 * No call may block the agent on something that the sandbox controls: files are opened without blocking, and work that
 * takes long is done by child processes. The program uses no library and nothing of the image. build.sh builds it.
 *
 * This file has the start and the loop. requests.h receives frames, frames.h sends them.
 */
#include "../common/oom.h"
#include "channels.h"
#include "commands.h"
#include "connections.h"
#include "frames.h"
#include "handles.h"
#include "reports.h"
#include "requests.h"
#include "streams.h"
#include <asm/poll.h>
#include <linux/fcntl.h>
#include <linux/prctl.h>
#include <linux/time_types.h>

#define TICK 50000000 /* nanoseconds: how exactly a lingering output ends */

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
  action.flags = 0x04000000; /* SA_RESTORER */
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
      if (c->credit > 0 && events & ~POLLOUT) pull(c, stream, part == OUTPUT ? ANSWER_STDOUT : ANSWER_STDERR);
      if (is_current(c, part, fd)) end_lingering(c, stream, events & POLLIN);
  }
}

/* With the environment, for engines that do not show that of an image: /proc/self/environ is closed to a user other
   than root. */
static void send_ready(char **environment) {
  u32 n = READY_BYTES;
  put_ready(PAYLOAD, (struct ready_layout){FEATURE_LEAVES_CWD});
  for (; *environment; environment++) {
    u32 before = n;
    const char *c = *environment;
    do {
      if (n == FRAME_ROOM) return send_outgoing(0, ANSWER_READY, before);
      PAYLOAD[n++] = (u8)*c;
    } while (*c++);
  }
  send_outgoing(0, ANSWER_READY, n);
}

/* One round: waits for something to do, and does it. Does not return at the end of the input. */
static void serve_round(const u64 *unblocked) {
  int has_lingering = 0;
  polled_count = 0;
  add(0, REPORT, 0, POLLIN);
  for (int i = 0; i < CHANNELS; i++) {
    if (channels[i].state == FREE) continue;
    add_channel(&channels[i]);
    has_lingering |= lingers(&channels[i]);
  }
  struct __kernel_timespec tick = {0, TICK};
  long ready = call6(__NR_ppoll, (long)polled, polled_count, has_lingering ? (long)&tick : 0, (long)unblocked, 8, 0);
  if (ready < 0 && ready != -EINTR && ready != -ENOMEM) shut_down(1);
  reap();
  if (ready < 0 || (ready == 0 && !has_lingering)) return;
  for (int i = 1; i < polled_count; i++) serve(owners[i].channel, owners[i].part, polled[i].fd, polled[i].revents);
  /* Last: a request may change the channels that were polled. */
  if (polled[0].revents && !read_frames()) shut_down(0);
}

__attribute__((used, noreturn)) void start(long *stack) {
  char **argv = (char **)(stack + 1), **environment = argv + stack[0] + 1;
  if (stack[0] > 1 && same(argv[1], "--check", 8)) leave(0);
  /* Closes its memory and its descriptors to the processes of the sandbox: nobody else writes to the pipes of the
     engine, which reads without a limit, or reads the requests of others. The programs that it starts get their own
     back. */
  call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
  agent_pid = (int)call(__NR_getpid, 0, 0, 0, 0);
  /* A broken pipe and a file that may grow no more are answers of `write`. */
  u64 unblocked = 1UL << (SIGPIPE - 1) | 1UL << (SIGXFSZ - 1), blocked = unblocked | 1UL << (SIGCHLD - 1);
  call(__NR_rt_sigprocmask, SIG_SETMASK, &blocked, 0, sizeof blocked);
  wake_on_exit();
  free_handles();
  open_oom_counts();
  /* Before chdir: commands without a directory run in the one of this start. */
  keep_defaults(environment);
  call(__NR_chdir, "/", 0, 0, 0);
  send_ready(environment);
  for (;;) serve_round(&unblocked);
}
