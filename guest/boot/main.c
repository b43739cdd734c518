/*
 * Process 1 of a virtual machine, from its initial file system. It needs no library. build.sh builds it.
 *
 * It loads the modules, mounts the disks, and reads the boot configuration (configuration.h). Then it starts process 1
 * of the sandbox (sandbox.h), and passes bytes between it and the ports: sessions.h, output.h, control.h. When the
 * sandbox has ended, the machine turns itself off. A machine for an export starts none: archive.h.
 *
 * The service and the sandbox may each stop reading at any moment, so nothing here blocks on them.
 */
#include "../common/execute.h"
#include "archive.h"
#include "configuration.h"
#include "control.h"
#include "devices.h"
#include "entropy.h"
#include "failure.h"
#include "handoff.h"
#include "modules.h"
#include "network.h"
#include "output.h"
#include "root.h"
#include "sandbox.h"
#include "sessions.h"
#include "sync.h"
#include "times.h"
#include "use.h"
#include <linux/eventpoll.h>
#include <linux/fcntl.h>
#include <linux/wait.h>

#define MOST_URGENT -20
#define EVENTS 16
#define ROUNDS 64
#define LISTEN_TICK 5
#define FLUSH_TICK 20
#define FLUSH_LIMIT (5 * SECOND)
#define LINE_ROOM (LIMIT_RECORD + 1)

static const unsigned long ALL = ~0UL;

static struct sandbox sandbox;
static int events;
static u8 oom = OOM_UNKNOWN;
static char failure[LIMIT_CONTROL_LINE];
static long failure_bytes;

static void watch(int fd) {
  struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, 0};
  need(call(__NR_epoll_ctl, events, EPOLL_CTL_ADD, fd, &event), "watch a descriptor", 0);
}

static void prepare(void) {
  char device[NAME_ROOM];
  mount_kernel_files();
  load_base_modules();
  control_port = open_port("control");
  find_disk("boot", device);
  read_configuration(device);
  if (configuration.seed) add_entropy(configuration.seed, configuration.seed_bytes);
  for (int i = 0; i < configuration.module_count; i++) load_module(configuration.modules[i]);
  remove_modules();
  mount_root();
  if (configuration.host_name)
    need(call(__NR_sethostname, configuration.host_name, length(configuration.host_name), 0, 0), "set the host name", 0);
  /* As on other engines: any user may listen on any port, and send ICMP echo requests. */
  write_text("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  write_text("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
  open_loopback();
  if (configuration.network) open_network(configuration.network);
}

/* The pipe ends when process 1 of the sandbox runs its program. Before, it has the reason why that cannot be. */
static void read_failure(void) {
  static int has_started;
  if (has_started || failure_bytes > 0) return;
  long got = call(__NR_read, sandbox.failure, failure, sizeof failure - 1, 0);
  if (got > 0) failure_bytes = got;
  if (got != 0) return;
  has_started = 1;
  if (is_handed_off()) start_beside(&sandbox, 1);
  say("ready", (char *)0);
}

/* CODE SIGNAL OOM MICROSECONDS. */
static void read_record(void) {
  char text[LINE_ROOM + 1];
  long got = call(__NR_read, sandbox.record, text, LINE_ROOM, 0);
  if (got <= 0) return;
  text[got] = 0;
  char *end = text;
  for (int spaces = 0; *end && (*end != ' ' || ++spaces < 3); end++) continue;
  *end = 0;
  if (end > text) oom = (u8)(end[-1] - '0');
  if (!configuration.until_exit) say("end ", text, (char *)0);
}

static void stop_once(void) {
  static int is_stopped;
  if (!is_stop_requested || is_stopped) return;
  is_stopped = 1;
  call(__NR_kill, sandbox.process, stop_signal(&sandbox), 0, 0);
}

static int pump(void) { return pump_control() | pump_output() | pump_sessions(); }

static void wait_for_events(int milliseconds) {
  struct epoll_event happened[EVENTS];
  call6(__NR_epoll_pwait, events, (long)happened, EVENTS, milliseconds, 0, 8);
}

__attribute__((noreturn)) static void finish(int status) {
  char code[24], killed[24];
  refuse_sessions();
  read_failure();
  read_record();
  const int ended_with = is_handed_off() ? handed_off_code(status) : exit_code(status);
  close_given(&sandbox);
  /* The end of a command that the service stopped has no record. */
  if (!configuration.until_exit || oom == OOM_UNKNOWN)
    oom = ended_with == 128 + SIGKILL && count_oom_kills() > 0 ? OOM_YES : OOM_NO;
  *put_number(code, (u64)ended_with) = 0;
  *put_number(killed, oom) = 0;
  if (failure_bytes > 0) say_failure(failure);
  else say("exit ", code, " ", killed, (char *)0);
  for (long limit = now() + FLUSH_LIMIT; now() < limit;) {
    while (pump()) continue;
    if (is_output_empty()) break;
    wait_for_events(FLUSH_TICK);
  }
  flush_control();
  unmount_root();
  power_off();
}

__attribute__((used, noreturn)) void start(long *stack) {
  (void)stack;
  call(__NR_rt_sigprocmask, SIG_SETMASK, &ALL, 0, sizeof ALL);
  /* However many processes the sandbox has, a stop comes through. */
  call(__NR_setpriority, PRIO_PROCESS, 0, MOST_URGENT, 0);
  prepare();
  if (configuration.is_archive) send_archive();
  events = (int)need(call(__NR_epoll_create1, O_CLOEXEC, 0, 0, 0), "watch descriptors", 0);
  int agent = open_port("agent"), output = open_port("output");
  /* Blocked signals stay pending, and the descriptor tells of them. */
  static const unsigned long ends = 1UL << (SIGCHLD - 1);
  int signals = (int)need(call(__NR_signalfd4, -1, &ends, sizeof ends, O_CLOEXEC | O_NONBLOCK), "watch signals", 0);
  ask_time();
  sandbox = start_sandbox();
  /* ../init beside a program of the image gets it later, and again. */
  if (!is_handed_off()) drop_configuration();
  watch(signals);
  watch(sandbox.failure);
  watch(control_port);
  watch(output);
  watch(sandbox.record);
  for (int i = 0; i < STREAMS; i++) watch(sandbox.output[i]);
  open_output(output, sandbox.output);
  open_sessions(agent, events);
  for (;;) {
    /* Before the rounds, which send what these say: nothing else may happen for a long time. */
    read_failure();
    read_record();
    /* A stream that does not end holds up neither a stop nor an end. */
    int moved = 1;
    for (int i = 0; i < ROUNDS && moved; i++) moved = pump();
    stop_once();
    u8 dropped[1024];
    while (call(__NR_read, signals, dropped, sizeof dropped, 0) > 0) continue;
    int status;
    long ended;
    while ((ended = call(__NR_wait4, -1, &status, WNOHANG, 0)) > 0)
      if (ended == sandbox.process) finish(status);
      else if (end_beside(&sandbox, ended, status) || end_sync(ended)) moved = 1;
    const int tick = tick_beside(&sandbox);
    wait_for_events(moved ? 0 : is_session_waiting() ? LISTEN_TICK : tick);
  }
}
