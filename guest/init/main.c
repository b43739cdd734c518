/*
 * Process 1 of every sandbox, and of its pause container, which owns the network namespace.
 *
 *   init [--until-exit] [--stop-signal=N] [--output-rate=N --output-burst=N] [--await=FILE] [--host-name=NAME]
 *        [--append-path=DIRECTORY] [--record=HYPHENS] [--record-copy=N] [--workdir=DIRECTORY] [--agents] [--handover]
 *        [--beside=N] [-- COMMAND [ARGUMENT...]]
 *   init --listen=PORT   only accepts TCP connections, for the probe of a network
 *   init --open=DIRECTORY...   prepares volumes before their first use, and exits
 *   init --check         exits at once, which shows that the engine can run it
 *
 * It starts COMMAND once, in a session of its own, and keeps the sandbox up after COMMAND has ended. With --until-exit
 * the sandbox ends with COMMAND, and the exit code of COMMAND becomes its own. Without COMMAND it only keeps the
 * sandbox up. It reaps every orphan and forwards signals to COMMAND. With --output-rate it limits the output of COMMAND
 * (output.h). With --record it keeps the end of COMMAND there (record.h), and with --record-copy it writes it to the
 * inherited descriptor N. With --await it starts COMMAND when FILE exists, with --host-name when the sandbox has that
 * name (host_name.h). --append-path adds a directory to PATH of COMMAND. --workdir makes and enters the working
 * directory of COMMAND (workdir.h). With --agents it starts an agent for each connection of the service (agents.h).
 * With --handover it takes COMMAND from the service later (handover.h), and starts it as one of its arguments. With
 * --beside process 1 is a program of the image (../boot/handoff.h), and this process has entered the sandbox. It stops
 * COMMAND and no other process, and takes the connections for agents from the inherited descriptor N.
 *
 * SIGTERM stops the sandbox: COMMAND gets the stop signal N (default: SIGTERM). After COMMAND has ended, every process
 * that is left gets SIGTERM, and SIGHUP after HANGUP_AFTER. After FLUSH_LIMIT the kernel kills the processes that
 * remain.
 *
 * The program needs no library and no file of the image. build.sh builds it.
 */
#include "../common/execute.h"
#include "../common/oom.h"
#include "agents.h"
#include "handover.h"
#include "host_name.h"
#include "listen.h"
#include "output.h"
#include "record.h"
#include "service.h"
#include "volumes.h"
#include "workdir.h"
#include <linux/fcntl.h>
#include <linux/time_types.h>
#include <linux/wait.h>

#define HANGUP_AFTER SECOND
#define FLUSH_LIMIT (2 * SECOND)
#define EXIT_NOT_RUNNABLE 126
#define EXIT_NOT_FOUND 127
#define EXIT_NOT_LISTENING 1

typedef unsigned long Mask;

static const Mask ALL = ~0UL;
static const Mask NONE = 0;

/* Returns the text after `prefix`, or null when `text` starts differently. */
static const char *after(const char *text, const char *prefix) {
  while (*prefix)
    if (*text++ != *prefix++) return 0;
  return text;
}

static long parse(const char *digits) {
  long number = 0;
  for (; *digits >= '0' && *digits <= '9'; digits++) number = number * 10 + *digits - '0';
  return number;
}

static void complain(const char *text) { call(__NR_write, 2, (long)text, length(text), 0); }

static const char *reason(long error) {
  switch (error) {
    case -ENOENT: return "it or its interpreter does not exist";
    case -EACCES: return "permission denied";
    case -ENOEXEC: return "it is not an executable file";
    case -EAGAIN: return "the limit of processes is reached";
    case -ENOMEM: return "out of memory";
    case -EMFILE: return "the limit of open files is reached";
    case -E2BIG: return "its arguments and environment are too long";
    default: return "the kernel refused it";
  }
}

static int refused(const char *name, long error) {
  complain("sandkeep: cannot run \"");
  complain(name);
  complain("\": ");
  complain(reason(error));
  complain("\n");
  return error == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

static const char *directory_reason(long error) {
  switch (error) {
    case -ENOENT: return "it does not exist";
    case -ENOTDIR: return "it is not a directory";
    case -EACCES: return "permission denied";
    case -EROFS: return "it does not exist, and the disk is read-only";
    default: return "the kernel refused it";
  }
}

/* Starts the command. Returns its process id, or a negative errno. `rate`: 0 gives it the engine's pipes. */
static long spawn(char **command, char **environment, long rate, long burst) {
  int ends[STREAMS];
  long failed = rate > 0 ? open_relays(ends, rate, burst) : 0;
  if (failed < 0) return failed;
  long child = call(__NR_clone, SIGCHLD, 0, 0, 0);
  if (child != 0) {
    for (int i = 0; rate > 0 && i < STREAMS; i++) call(__NR_close, ends[i], 0, 0, 0);
    return child;
  }
  for (int i = 0; rate > 0 && i < STREAMS; i++) call(__NR_dup3, ends[i], i + 1, 0, 0);
  call(__NR_setsid, 0, 0, 0, 0);
  call(__NR_rt_sigprocmask, SIG_SETMASK, (long)&NONE, 0, sizeof NONE);
  long outside = enter_workdir();
  if (outside < 0) {
    complain("sandkeep: cannot enter the working directory \"");
    complain(workdir.path);
    complain("\": ");
    complain(directory_reason(outside));
    complain("\n");
    leave(EXIT_NOT_RUNNABLE);
  }
  leave(refused(command[0], execute(command, environment)));
}

/* Copies `environment` to `own`, with `directory` at the end of PATH in `text`. Both have room for that. */
static void append_path(char **environment, const char *directory, char **own, char *text) {
  const char *path = value_of(environment, "PATH=");
  if (!path) path = DEFAULT_PATH;
  const char *parts[] = {"PATH=", path, ":", directory};
  char *end = text;
  for (int i = 0; i < 4; i++)
    for (const char *c = parts[i]; *c; c++) *end++ = *c;
  *end = 0;
  for (; *environment; environment++)
    if (!same(*environment, "PATH=", 5)) *own++ = *environment;
  *own++ = text;
  *own = 0;
}

__attribute__((noreturn)) static void finish(int code) {
  drain();
  leave(code);
}

__attribute__((used, noreturn)) void start(long *stack) {
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  char **environment = argv + argc + 1;
  int until_exit = 0;
  int stop_signal = SIGTERM;
  long rate = 0;
  long burst = 0;
  int opened = 0;
  const char *awaited = 0;
  const char *host_name = 0;
  int beside = -1;
  int has_agents = 0;
  int has_handover = 0;
  const char *directory = 0;
  char **command = 0;
  for (char **argument = argv + 1; argc > 1 && *argument; argument++) {
    const char *number = after(*argument, "--stop-signal=");
    const char *tokens = after(*argument, "--output-rate=");
    const char *most = after(*argument, "--output-burst=");
    const char *file = after(*argument, "--await=");
    const char *named = after(*argument, "--host-name=");
    const char *added = after(*argument, "--append-path=");
    const char *kept = after(*argument, "--record=");
    const char *copied = after(*argument, "--record-copy=");
    const char *entered = after(*argument, "--workdir=");
    const char *joined = after(*argument, "--beside=");
    const char *port = after(*argument, "--listen=");
    const char *volume = after(*argument, "--open=");
    if (number)
      stop_signal = parse(number);
    else if (tokens)
      rate = parse(tokens);
    else if (most)
      burst = parse(most);
    else if (file)
      awaited = file;
    else if (named)
      host_name = named;
    else if (added)
      directory = added;
    else if (kept && length(kept) == LIMIT_RECORD)
      record = (char *)kept;
    else if (kept)
      continue;
    else if (copied) {
      record_copy = parse(copied);
      call(__NR_fcntl, record_copy, F_SETFD, FD_CLOEXEC, 0);
    } else if (entered)
      workdir.path = (char *)entered;
    else if (port && listen_on(parse(port)) < 0)
      leave(EXIT_NOT_LISTENING);
    else if (port)
      continue;
    else if (volume) {
      open_volume(volume);
      opened = 1;
    } else if (after(*argument, "--agents"))
      has_agents = 1;
    else if (after(*argument, "--handover"))
      has_handover = 1;
    else if (after(*argument, "--until-exit"))
      until_exit = 1;
    else if (joined)
      beside = (int)parse(joined);
    else if (after(*argument, "--check"))
      leave(0);
    else {
      command = argument + 1;
      break;
    }
  }
  if (opened) leave(0);
  if (command && !*command) command = 0;

  u64 variables = 0;
  while (environment[variables]) variables++;
  const char *path = value_of(environment, "PATH=");
  char *own[variables + 2];
  char text[length(path ? path : DEFAULT_PATH) + (directory ? length(directory) : 0) + sizeof "PATH=:"];
  if (directory) {
    append_path(environment, directory, own, text);
    environment = own;
  }

  /* Kept open, as by every sandbox: a file that is open takes no write lease, which would hold up the agents of all
     others. */
  call(__NR_openat, AT_FDCWD, (long)"/.sandkeep/bin/agent", O_RDONLY | O_CLOEXEC, 0);

  /* The connections of the service. A sandbox without the first way is entered by the engine. The service finds out
     about the second before it relies on it. */
  struct ways ways = {-1, -1};
  if (has_agents) ways.agents = beside >= 0 ? take_listener(beside) : listen_for_service(AGENTS);
  if (has_handover) ways.handovers = listen_for_service(HANDOVERS);

  make_workdir();

  /* Blocked signals stay pending. The kernel drops unblocked ones that process 1 does not handle. */
  call(__NR_rt_sigprocmask, SIG_SETMASK, (long)&ALL, 0, sizeof ALL);
  int signals = call(__NR_signalfd4, -1, &ALL, sizeof ALL, O_CLOEXEC);
  /* A process of the sandbox could write to the engine by way of /proc/1/fd. */
  int has_output = command || has_handover;
  for (int output = 1; !has_output && output <= STREAMS; output++) call(__NR_close, output, 0, 0, 0);
  if (has_output) open_oom_counts();
  int pending = command != 0;
  char **environment_of_command = environment;
  long child = 0;
  int code = 0;
  int stopping = 0;
  int hung_up = 0;
  long flushing_since = 0;
  const struct __kernel_timespec at_once = {0, 0};
  for (;;) {
    if (pending && !stopping && (!awaited || call(__NR_faccessat, AT_FDCWD, awaited, 0, 0) == 0) &&
        (!host_name || has_host_name(host_name))) {
      pending = 0;
      kills_before = oom_kills();
      child = spawn(command, environment_of_command, rate, burst);
      if (child < 0) {
        code = refused(command[0], child);
        child = 0;
        record_end(code << 8, until_exit);
        if (until_exit) leave(code);
      }
    }
    /* Processes of an exec are no children of process 1: while it flushes, it also polls. */
    int flushing = stopping && !child;
    if (flushing && beside >= 0) finish(until_exit ? code : 0);
    long flushed = flushing ? now() - flushing_since : 0;
    if (flushing && (call(__NR_kill, -1, 0, 0, 0) < 0 || flushed >= FLUSH_LIMIT)) finish(until_exit ? code : 0);
    /* Interactive shells ignore SIGTERM. SIGHUP comes later, as it may kill a process that is handling SIGTERM. */
    if (flushed >= HANGUP_AFTER && !hung_up++) call(__NR_kill, -1, SIGHUP, 0, 0);
    relay_output(signals, &ways, flushing || pending);
    if (ways.agents >= 0) ways.agents = admit_agents(ways.agents, environment);
    struct handover taken;
    if (ways.handovers >= 0 && admit_handover(ways.handovers, environment, &taken)) {
      command = taken.command;
      environment_of_command = taken.environment;
      until_exit = taken.until_exit;
      pending = command != 0;
    }
    long got = call(__NR_rt_sigtimedwait, &ALL, 0, &at_once, sizeof ALL);

    int status;
    long ended;
    int was_running = child != 0;
    while ((ended = call(__NR_wait4, -1, (long)&status, WNOHANG, 0)) > 0) {
      if (ended != child) continue;
      code = exit_code(status);
      child = 0;
      if (!stopping) record_end(status, until_exit);
      if (until_exit && !stopping) finish(code);
    }

    int stops = got == SIGTERM && !stopping;
    if (stops) {
      stopping = 1;
      close_ways(&ways);
    }
    if (child && got > 0 && got != SIGCHLD)
      call(__NR_kill, child, got == SIGTERM ? stop_signal : got, 0, 0);
    if (stopping && !child && beside < 0 && (stops || was_running)) {
      flushing_since = now();
      call(__NR_kill, -1, SIGTERM, 0, 0);
      call(__NR_kill, -1, SIGCONT, 0, 0);
    }
  }
}
