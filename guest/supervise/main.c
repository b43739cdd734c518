/*
 * The supervisor of one virtual machine. It outlives the service.
 *
 *   supervise --user=N [--also-group=N] [--service=PID] --changes=FD [--kept=FD] --inherited=N --log-limit=BYTES
 *             --file-mib=N [--restore=FD] [--join=FILE]... [--share=FD | --share-readonly=FD]... [--server=WORD]...
 *             [--hold-at=ADDRESS --hold-tcp=PORT | --hold-udp=PORT]...
 *             -- MONITOR [ARGUMENT...]
 *
 * It works in the directory of the run, which no two supervisors share (a lock), and joins the control groups of each
 * FILE. It starts MONITOR as the user N (monitor.h) with the descriptors below N of --inherited, lets its processors
 * run, and keeps the record of the run (record.h). The monitor writes no file beyond --file-mib. Two descriptors are
 * not for the monitor: the supervisor writes to --changes at each change, and keeps --kept open. It is the other end
 * of the ports of the sandbox: it logs the output (output.h) and the console, each with a bound. It reads every port
 * whatever arrives, as a port without a reader blocks the sandbox. A rate for each port bounds its own work.
 *
 * It keeps other programs of the machine from each PORT of the ADDRESS before it, a number (ports.h).
 *
 * The command of all --server serves the directory or the file FD of each --share to the sandbox (shares.h). The
 * monitor gets the connection as FD.
 *
 * The service sends lines on the socket supervisor.sock:
 *
 *   stop MILLISECONDS   process 1 of the sandbox gets the time to end, then the monitor ends; the socket closes then
 *   save BYTES          the memory, as far as its file is no larger (memory.h): the answer is the line `unsaved WORDS`
 *                       where the sandbox runs on; the socket closes when the run has ended
 *   hold                the processors stand still until the client is gone (hold.h): the answer is the line `held`,
 *                       `busy` during another hold, or `unheld WORDS` where they run on, also later
 *   use                 the answer is the line that the sandbox sends: use CPU_MICROS MEMORY_BYTES PROCESSES; a line
 *                       without a request is dropped
 *
 * It dies with nobody but the process of --service, and the monitor dies with it.
 */
#include "../common/fail.h"
#include "clock.h"
#include "halt.h"
#include "hold.h"
#include "lines.h"
#include "log.h"
#include "memory.h"
#include "monitor.h"
#include "output.h"
#include "ports.h"
#include "record.h"
#include "requests.h"
#include "shares.h"
#include <asm/poll.h>
#include <linux/fcntl.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/time_types.h>
#include <linux/wait.h>

#define KIB 1024L
#define MIB (KIB * KIB)
#define LOCK_EXCLUSIVE 2
#define LOCK_AT_ONCE 4
#define PIECE (64 * KIB)
#define CONSOLE_LIMIT (64 * KIB)
/* A disk that is slow to write may hold up the monitor for so long. */
#define QUIT_LIMIT (5 * SECOND)
/* At the end of the machine. */
#define STOP_ON_SIGTERM (5 * SECOND)
#define LONGEST_GRACE 3600000L
#define MOST_MEMORY (1L << 50)
#define SEED_BYTES 32
#define PORTS 64
/* While a port has used up its rate. */
#define REST (SECOND / 20)
#define DRAINED_BYTES (4 * MIB)

typedef struct {
  int fd; /* -1: its end has gone */
  long rate; /* bytes for a second, and the most at once */
  long tokens;
  void (*take)(u8 *data, long n);
} Source;

static struct log output_log = {.name = "../output", .older = "../output.1"};
static struct log console_log = {.name = "console", .older = "console.1", .is_plain = 1, .limit = CONSOLE_LIMIT};
static struct lines qmp_lines;
static struct lines control_lines;
static long deadline; /* of the next step of a stop; 0: none */
static int is_quitting; /* then the next step kills the monitor */
static int is_use_asked;
static long service; /* the process with which this one ends; 0: none */

static char *find(char *text, const char *words) {
  u64 n = length(words);
  for (; *text; text++)
    if (same(text, words, n)) return text + n;
  return 0;
}

/* The sandbox may have no clock of its own, and its processors may have been stopped. */
static void say_clock(void) {
  char words[48];
  char *end = words;
  for (const char *c = "clock "; *c; c++) *end++ = *c;
  end = put_number(end, (u64)wall_clock());
  *end++ = '\n';
  *end = 0;
  say_control(words);
}

/* A machine that continues its memory must not go on with the random numbers that it had. */
static void say_seed(void) {
  u8 seed[SEED_BYTES];
  char words[8 + 2 * SEED_BYTES];
  if (call(__NR_getrandom, seed, sizeof seed, 0, 0) != sizeof seed) return;
  copy_text(words, sizeof words, "seed ", 5);
  char *end = words + 5;
  for (int i = 0; i < SEED_BYTES; i++) {
    *end++ = "0123456789abcdef"[seed[i] >> 4];
    *end++ = "0123456789abcdef"[seed[i] & 15];
  }
  *end++ = '\n';
  *end = 0;
  say_control(words);
}

static int is_unsaved;

static void save(void) {
  int was_unsaved = is_unsaved;
  is_unsaved = write_record() < 0;
  /* A full disk: it is tried again each second. */
  if (is_unsaved && !was_unsaved) call(__NR_write, 2, "cannot write the record\n", 24, 0);
}

static void quit(void) {
  is_quitting = 1;
  say_qmp("{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n");
  deadline = steady_clock() + QUIT_LIMIT;
}

static void halt(void) {
  static const char words[] = "the monitor has stopped the processors: is the disk of the machine full?\n";
  static int is_said; /* it may come each second, and the console is short */
  if (!is_said) write_log(&console_log, 2, (const u8 *)words, sizeof words - 1);
  is_said = 1;
  end_hold(HALTED);
  begin_halt();
}

static void take_qmp_line(char *line) {
  if (find(line, "{\"QMP\":")) {
    say_qmp("{\"execute\":\"qmp_capabilities\"}\n");
    if (!begin_restore()) say_qmp("{\"execute\":\"cont\"}\n");
    return;
  }
  if (after(line, "{\"error\":")) {
    take_qmp_error(line);
    /* A monitor that ends writes what it holds of the disk. */
    if (!is_quitting) take_refusal();
  }
  char *event = find(line, "\"event\": \"");
  if (!event) return;
  if (after(event, "RESUME\"")) {
    hold_resumed();
    end_halt();
  }
  if (after(event, "RESUME\"") && !record.started) {
    record.started = wall_clock();
    if (restored_from) {
      record.ready = record.started;
      say_seed();
      say_clock();
    }
    save();
  } else if (after(event, "RESUME\""))
    say_clock();
  else if (after(event, "STOP\"")) {
    if (!take_stop() && !hold_stopped()) halt();
  }
  else if (after(event, "MIGRATION\"")) {
    if (take_migration(event)) quit();
  } else if (after(event, "SHUTDOWN\"") && !record.stopped) {
    record.stopped = wall_clock();
    record.shutdown = find(event, "\"guest\": true") ? SHUTDOWN_GUEST : SHUTDOWN_HOST;
    /* The monitor ends by itself now. */
    if (!is_quitting) deadline = steady_clock() + QUIT_LIMIT;
    is_quitting = 1;
  }
}

/* In words of our own: what the guest writes could look like another answer to another client. */
static void say_use(char *numbers) {
  if (!is_use_asked) return;
  is_use_asked = 0;
  char words[80];
  char *end = words;
  for (const char *c = "use"; *c; c++) *end++ = *c;
  for (int i = 0; i < 3; i++) {
    long number = take_number(&numbers, MOST_MEMORY);
    if (number < 0) return;
    *end++ = ' ';
    end = put_number(end, (u64)number);
  }
  *end = 0;
  answer_clients(words);
}

static void take_control_line(char *line) {
  char *words;
  if (after(line, "clock"))
    say_clock();
  else if (after(line, "synced"))
    take_synced();
  else if ((words = after(line, "use "))) {
    say_use(words);
  } else if ((words = after(line, "failed ")) && !record.failed[0]) {
    copy_text(record.failed, sizeof record.failed, words, length(words));
    for (char *c = record.failed; *c; c++)
      if (*c < ' ' || *c > '~') *c = '?';
    save();
  } else if (after(line, "ready") && !record.ready) {
    record.ready = wall_clock();
    save();
  } else if ((words = after(line, "end ")) && !record.command.at) {
    long code = take_number(&words, 255);
    long signal = take_number(&words, 64);
    long oom = take_number(&words, 2);
    if (code < 0 || signal < 0 || oom < 0) return;
    record.command.at = wall_clock();
    record.command.code = (int)code;
    record.command.signal = (int)signal;
    record.command.oom = (int)oom;
    save();
  } else if ((words = after(line, "exit ")) && !record.exit.is_said) {
    long code = take_number(&words, 255);
    long oom = take_number(&words, 2);
    if (code < 0 || oom < 0) return;
    record.exit.is_said = 1;
    record.exit.code = (int)code;
    record.exit.oom = (int)oom;
  }
}

static void stop_within(long nanos) {
  give_up_save("it is stopped");
  end_hold("it is stopped");
  long at = steady_clock() + nanos;
  if (record.stop == STOP_NONE && nanos > 0) say_control("stop\n");
  if (record.stop == STOP_NONE) record.stop = STOP_ASKED;
  if (!is_quitting && (deadline == 0 || at < deadline)) deadline = at;
}

static void take_request(struct client *client, char *line) {
  char *words = after(line, "stop ");
  long millis = words ? take_number(&words, LONGEST_GRACE) : -1;
  if (millis >= 0) stop_within(millis * (SECOND / 1000));
  if (after(line, "use")) {
    is_use_asked = 1;
    say_control("use\n");
  }
  words = after(line, "save ");
  long most_bytes = words ? take_number(&words, MOST_MEMORY) : -1;
  if (most_bytes >= 0 && is_held()) answer_clients("unsaved a snapshot of it is being made");
  else if (most_bytes >= 0 && is_halted()) answer_clients("unsaved " HALTED);
  else if (most_bytes >= 0) begin_save(most_bytes);
  if (after(line, "hold")) begin_hold(client);
}

/* The end of a grace time: the monitor writes what it holds of the disk, and then it is killed. */
static void force(void) {
  if (!record.stopped) record.stop = STOP_FORCED;
  if (is_quitting) {
    kill_monitor();
    deadline = 0;
    return;
  }
  quit();
}

static void take_qmp(u8 *data, long n) { take_lines(&qmp_lines, data, n, take_qmp_line); }
static void take_control(u8 *data, long n) { take_lines(&control_lines, data, n, take_control_line); }
static void take_output_bytes(u8 *data, long n) { take_output(&output_log, data, n); }
static void take_console(u8 *data, long n) { write_log(&console_log, 1, data, (u32)n); }
static void take_errors(u8 *data, long n) { write_log(&console_log, 2, data, (u32)n); }

#define SOURCES (STREAMS + 1)
static Source sources[SOURCES] = {
    [QMP] = {.rate = 256 * KIB, .take = take_qmp},
    [CONTROL] = {.rate = 16 * KIB, .take = take_control},
    [OUTPUT] = {.rate = 8 * MIB, .take = take_output_bytes},
    [CONSOLE] = {.rate = 64 * KIB, .take = take_console},
    [STREAMS] = {.rate = 64 * KIB, .take = take_errors},
};

/* Returns the number of bytes. */
static long read_source(Source *source) {
  static u8 data[PIECE];
  long n = call(__NR_read, source->fd, data, source->rate < PIECE ? source->rate : PIECE, 0);
  if (n == -EAGAIN || n == -EINTR) return 0;
  if (n <= 0) {
    source->fd = -1;
    return 0;
  }
  source->tokens -= n;
  source->take(data, n);
  return n;
}

static void refill(void) {
  static long refilled;
  long now = steady_clock();
  long passed = refilled == 0 || now - refilled > SECOND ? SECOND : now - refilled;
  refilled = now;
  for (Source *source = sources; source < sources + SOURCES; source++) {
    source->tokens += passed / 1000 * source->rate / (SECOND / 1000);
    if (source->tokens > source->rate) source->tokens = source->rate;
  }
}

__attribute__((noreturn)) static void finish(int status, const struct rusage *use) {
  for (Source *source = sources; source < sources + SOURCES; source++)
    for (long left = DRAINED_BYTES; left > 0 && source->fd >= 0;) {
      long n = read_source(source);
      if (n == 0) break;
      left -= n;
    }
  long ended = wall_clock();
  end_file_servers();
  close_memory();
  if (record.saved) keep_frame();
  record.ended = record.stopped ? record.stopped : ended;
  record.status = status;
  record.cpu_micros = (use->ru_utime.tv_sec + use->ru_stime.tv_sec) * 1000000 + use->ru_utime.tv_usec + use->ru_stime.tv_usec;
  /*
   * The record must say that the run has ended: nothing else does so to the microsecond. Nobody needs that of a machine
   * that ends with the service. There the disk may be full of the files that the service removes after the end.
   */
  while (write_record() == -ENOSPC && !service) {
    struct __kernel_timespec pause = {1, 0};
    call6(__NR_ppoll, 0, 0, (long)&pause, 0, 0, 0);
  }
  call(__NR_unlinkat, AT_FDCWD, "agent.sock", 0, 0);
  call(__NR_unlinkat, AT_FDCWD, "supervisor.sock", 0, 0);
  leave(0);
}

static void add_share(long fd, int is_readonly) {
  if (shares.count == SHARES) fail("read the arguments", -E2BIG);
  shares.each[shares.count++] = (struct share){.fd = fd, .is_readonly = is_readonly};
}

static void reap(void) {
  static const char words[] = "the file server of a volume has ended, and the machine with it\n";
  int status;
  struct rusage use;
  if (call(__NR_wait4, monitor.process, &status, WNOHANG, &use) == monitor.process) finish(status, &use);
  if (!has_file_server_ended() || is_quitting) return;
  write_log(&console_log, 2, (const u8 *)words, sizeof words - 1);
  kill_monitor();
}

static void take_signals(int signals) {
  for (;;) {
    u8 taken[128];
    if (call(__NR_read, signals, taken, sizeof taken, 0) != sizeof taken) return;
    if (taken[0] == SIGTERM) stop_within(STOP_ON_SIGTERM);
  }
}

static void serve_round(int signals, long *touched) {
  struct pollfd polled[2 + SOURCES + CLIENTS] = {{.fd = signals, .events = POLLIN}, {.fd = requests, .events = POLLIN}};
  refill();
  long now = steady_clock();
  if (now - *touched >= SECOND) {
    touch_alive();
    if (is_unsaved) save();
    check_memory();
    if (!is_quitting) check_halt();
    *touched = now;
  }
  long wait = *touched + SECOND - now;
  if (deadline && deadline - now < wait) wait = deadline - now;
  struct pollfd *polled_sources = polled + 2;
  for (int i = 0; i < SOURCES; i++) {
    int rests = sources[i].tokens <= 0;
    polled_sources[i] = (struct pollfd){.fd = rests ? -1 : sources[i].fd, .events = POLLIN};
    if (rests && wait > REST) wait = REST;
  }
  struct pollfd *polled_clients = polled_sources + SOURCES;
  for (int i = 0; i < CLIENTS; i++) polled_clients[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
  if (wait < 0) wait = 0;
  struct __kernel_timespec pause = {wait / SECOND, wait % SECOND};
  long ready = call6(__NR_ppoll, (long)polled, 2 + SOURCES + CLIENTS, (long)&pause, 0, 0, 0);
  if (ready > 0) {
    for (int i = 0; i < SOURCES; i++)
      if (polled_sources[i].revents) read_source(&sources[i]);
    for (int i = 0; i < CLIENTS; i++)
      if (polled_clients[i].revents) read_client(&clients[i], take_request);
    if (polled[1].revents) admit_client();
    if (polled[0].revents) take_signals(signals);
  }
  check_hold();
  reap();
  if (deadline && steady_clock() >= deadline) force();
}

/* The monitor gets every number below the first one, and no other: the service may have left more open. */
static void tidy_descriptors(void) {
  for (long fd = 3; fd < monitor.inherited; fd++) {
    if (call(__NR_fcntl, fd, F_GETFD, 0, 0) >= 0) continue;
    long nothing = call(__NR_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
    check("fill a descriptor", nothing);
    if (nothing == fd) continue;
    check("fill a descriptor", call(__NR_dup3, nothing, fd, O_CLOEXEC, 0));
    call(__NR_close, nothing, 0, 0, 0);
  }
  check("close descriptors", call(__NR_close_range, monitor.inherited, ~0u, 0, 0));
}

static void write_to(const char *path, const char *text) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  check("open a control group", fd);
  check("join a control group", call(__NR_write, fd, text, length(text), 0));
  call(__NR_close, fd, 0, 0, 0);
}

__attribute__((used, noreturn)) void start(long *stack) {
  program_name = "supervise";
  char **argument = (char **)(stack + 1) + 1;
  long changes = -1;
  long kept = -1;
  char *text;
  char *joined[16];
  struct held_port held[PORTS];
  long address = 0;
  int joins = 0, ports = 0;
  for (; *argument && !same(*argument, "--", 3); argument++) {
    if ((text = after(*argument, "--user="))) monitor.user = parse(text);
    else if ((text = after(*argument, "--also-group="))) monitor.also_group = parse(text);
    else if ((text = after(*argument, "--changes="))) changes = parse(text);
    else if ((text = after(*argument, "--kept="))) kept = parse(text);
    else if ((text = after(*argument, "--restore="))) restored_from = parse(text);
    else if ((text = after(*argument, "--service="))) service = parse(text);
    else if ((text = after(*argument, "--inherited="))) monitor.inherited = parse(text);
    else if ((text = after(*argument, "--file-mib="))) monitor.file_mib = parse(text);
    else if ((text = after(*argument, "--log-limit="))) output_log.limit = parse(text);
    else if ((text = after(*argument, "--share="))) add_share(parse(text), 0);
    else if ((text = after(*argument, "--share-readonly="))) add_share(parse(text), 1);
    else if ((text = after(*argument, "--server=")) && shares.words < SERVER_WORDS) shares.command[shares.words++] = text;
    else if ((text = after(*argument, "--join=")) && joins < 16) joined[joins++] = text;
    else if ((text = after(*argument, "--hold-at="))) address = parse(text);
    else if ((text = after(*argument, "--hold-tcp=")) && ports < PORTS)
      held[ports++] = (struct held_port){HELD_TCP, (u16)parse(text), (u32)address};
    else if ((text = after(*argument, "--hold-udp=")) && ports < PORTS)
      held[ports++] = (struct held_port){HELD_UDP, (u16)parse(text), (u32)address};
    else fail("read the arguments", -EINVAL);
  }
  if (!*argument || !argument[1] || changes < 3 || monitor.inherited < 3 || monitor.file_mib < 1)
    fail("read the arguments", -EINVAL);
  monitor.command = argument + 1;

  if (service) {
    check("die with the service", call6(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0));
    /* It may have died before the kernel knew of its part. */
    if (call(__NR_getppid, 0, 0, 0, 0) != service) leave(EXIT_NOT_STARTED);
  }
  tidy_descriptors();
  static const u64 all_signals = ~0UL;
  call(__NR_setsid, 0, 0, 0, 0);
  call(__NR_umask, 077, 0, 0, 0);
  call(__NR_rt_sigprocmask, SIG_SETMASK, &all_signals, 0, sizeof all_signals);
  long directory = call(__NR_openat, AT_FDCWD, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  check("open the directory", directory);
  check("lock the directory, which another supervisor has", call(__NR_flock, directory, LOCK_EXCLUSIVE | LOCK_AT_ONCE, 0, 0));
  for (int i = 0; i < ports; i++) hold_port(&held[i]);
  for (int i = 0; i < joins; i++) write_to(joined[i], "0");
  check("keep a descriptor", call(__NR_fcntl, changes, F_SETFD, FD_CLOEXEC, 0));
  if (kept >= 0) check("keep a descriptor", call(__NR_fcntl, kept, F_SETFD, FD_CLOEXEC, 0));
  int signals = (int)call(__NR_signalfd4, -1, &all_signals, sizeof all_signals, O_CLOEXEC | O_NONBLOCK);
  check("await signals", signals);

  open_record((int)changes);
  touch_alive();
  open_log(&output_log);
  if (restored_from) restore_frame();
  open_log(&console_log);
  open_requests();
  open_errors();
  start_file_servers(monitor.given_errors);
  start_monitor();
  /* The monitor has them. */
  for (long fd = 3; fd < monitor.inherited; fd++)
    if (fd != changes && fd != kept) call(__NR_close, fd, 0, 0, 0);
  for (int i = 0; i < STREAMS; i++) sources[i].fd = monitor.ends[i];
  sources[STREAMS].fd = monitor.errors;
  record.supervisor = call(__NR_getpid, 0, 0, 0, 0);
  record.monitor = monitor.process;
  check("write the record", write_record());
  long touched = steady_clock();
  for (;;) serve_round(signals, &touched);
}
