#include "handoff.h"
#include "../common/execute.h"
#include "../common/users.h"
#include "configuration.h"
#include "failure.h"
#include "files.h"
#include "rights.h"
#include "times.h"
#include <linux/fcntl.h>
#include <linux/sched.h>
#include <linux/un.h>
#include <linux/wait.h>

#define FAMILY_UNIX 1
#define STREAM 1
#define QUEUE 16
/* As in guest/init. */
#define AGENTS "sandkeep-agent"
#define AUTO "auto"
/* Of the C libraries: the first real-time signal, on which those of systemd are based. */
#define REALTIME 34
#define SYSTEMD_POWER_OFF (REALTIME + 4)
/* A program that does not end by then is killed. The supervisor ends a stop of the service earlier or later. */
#define STOP_LIMIT (10 * SECOND)
#define RESTART_PAUSE SECOND
#define MILLISECOND (SECOND / 1000)

/* The places of the kernel without its shell, then those of systemd. */
static const char *const PLACES[] = {"/sbin/init", "/etc/init", "/bin/init", "/lib/systemd/systemd", "/usr/lib/systemd/systemd"};

static long beside;           /* 0: it does not run */
static long started_at;       /* of the latest one */
static int has_ended_command; /* its end ends the sandbox */
static int code_of_command;
static long killed_at; /* 0: no end is near */

int is_handed_off(void) { return configuration.handoff.path != 0; }

long open_listener(void) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = FAMILY_UNIX;
  memcpy(address.sun_path + 1, AGENTS, sizeof AGENTS - 1);
  long listener = need(call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC | O_NONBLOCK, 0, 0), "make a socket for", AGENTS);
  need(call(__NR_bind, listener, &address, sizeof address.sun_family + sizeof AGENTS, 0), "name the socket", AGENTS);
  need(call(__NR_listen, listener, QUEUE, 0, 0), "listen on", AGENTS);
  return listener;
}

static char *find_program(void) {
  char *path = configuration.handoff.path;
  if (!same(path, AUTO, sizeof AUTO)) return path;
  for (u64 i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
    if (call(__NR_faccessat, AT_FDCWD, PLACES[i], 1, 0) == 0) return (char *)PLACES[i];
  end_with("init.cmd: the image has no /sbin/init, and no systemd: name its program");
}

void become_handed_off(void) {
  static const unsigned long none = 0;
  static User user;
  const char *name = configuration.user ? configuration.user : "0";
  /* Beside, nobody would read the reason. */
  need(find_user(name, &user), "find the user", name);
  char *path = configuration.handoff.arguments[0] = find_program();
  if (configuration.restricted) {
    forbid_rights();
    drop_capabilities();
  }
  call(__NR_setsid, 0, 0, 0, 0);
  call(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
  give_up("run", path, call(__NR_execve, path, configuration.handoff.arguments, configuration.handoff.environment, 0));
}

static long open_namespace(int process, const char *name) {
  char path[64], number[24];
  *put_number(number, (u64)process) = 0;
  join(path, sizeof path, "/proc/", process ? number : "self", "/ns/", name, (char *)0);
  return call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

void start_beside(struct sandbox *sandbox, int has_command) {
  long own = open_namespace(0, "pid"), processes = open_namespace(sandbox->process, "pid");
  long mounts = open_namespace(sandbox->process, "mnt"), groups = open_namespace(sandbox->process, "cgroup");
  started_at = now();
  /* Of a process 1 that has just ended there are none. */
  if (call(__NR_setns, processes, CLONE_NEWPID, 0, 0) == 0) {
    long child = call(__NR_clone, SIGCHLD, 0, 0, 0);
    if (child == 0) {
      /* The reasons are for the console of the machine. */
      failure_pipe = 2;
      become_beside(sandbox, (int)mounts, (int)groups, has_command);
    }
    if (child > 0) beside = child;
    need(call(__NR_setns, own, CLONE_NEWPID, 0, 0), "return to the own processes", 0);
  }
  const long opened[] = {own, processes, mounts, groups};
  for (int i = 0; i < 4; i++)
    if (opened[i] >= 0) call(__NR_close, opened[i], 0, 0, 0);
}

static void begin_end(struct sandbox *sandbox) {
  killed_at = now() + STOP_LIMIT;
  call(__NR_kill, sandbox->process, stop_signal(sandbox), 0, 0);
}

int end_beside(struct sandbox *sandbox, long process, int status) {
  if (process != beside) return 0;
  beside = 0;
  if (configuration.until_exit && !has_ended_command) {
    has_ended_command = 1;
    code_of_command = exit_code(status);
    begin_end(sandbox);
  }
  return 1;
}

static int until(long moment) {
  const long left = moment - now();
  return left > 0 ? (int)(left / MILLISECOND) + 1 : 0;
}

int tick_beside(struct sandbox *sandbox) {
  if (killed_at) {
    const int left = until(killed_at);
    if (left > 0) return left;
    call(__NR_kill, sandbox->process, SIGKILL, 0, 0);
    killed_at = 0;
  }
  if (beside || !started_at || has_ended_command) return -1;
  /* One that ends at once costs the sandbox a little of its own processor time. */
  const int left = until(started_at + RESTART_PAUSE);
  if (left > 0) return left;
  start_beside(sandbox, 0);
  return -1;
}

int stop_signal(const struct sandbox *sandbox) {
  char path[64], program[LIMIT_PATH], number[24];
  if (!is_handed_off()) return SIGTERM;
  if (configuration.handoff.stop_signal) return configuration.handoff.stop_signal;
  *put_number(number, (u64)sandbox->process) = 0;
  long n = call(__NR_readlinkat, AT_FDCWD, join(path, sizeof path, "/proc/", number, "/exe", (char *)0), program, sizeof program - 1);
  if (n < 0) return SIGTERM;
  program[n] = 0;
  while (n > 0 && program[n - 1] != '/') n--;
  if (same(program + n, "systemd", sizeof "systemd")) return SYSTEMD_POWER_OFF;
  if (same(program + n, "busybox", sizeof "busybox")) return SIGUSR2;
  return SIGTERM;
}

/* In a namespace of processes the kernel does what reboot(2) asks for by these two signals. No process of the sandbox
   can send them to process 1 against its will. */
int handed_off_code(int status) {
  const int signal = status & 0x7f;
  if (has_ended_command) return code_of_command;
  return signal == SIGINT || signal == SIGHUP ? 0 : exit_code(status);
}

void close_given(struct sandbox *sandbox) {
  for (int i = 0; i < GIVEN; i++)
    if (sandbox->given[i] >= 0) call(__NR_close, sandbox->given[i], 0, 0, 0);
  for (int i = 0; i < GIVEN; i++) sandbox->given[i] = -1;
}
