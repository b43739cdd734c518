#include "monitor.h"
#include "../common/execute.h"
#include "../common/rights.h"
#include "files.h"
#include <linux/fcntl.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/un.h>

#define FAMILY_UNIX 1
#define STREAM 1
#define NONBLOCK 04000
/* The numbers of the monitor's own descriptors are below. */
#define ABOVE 256
/* The highest is 1000. A machine without memory kills virtual machines before the database and the service. */
#define OOM_SCORE "900"

struct monitor monitor;

long listen_at(const char *path, int queue) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = FAMILY_UNIX;
  copy_text(address.sun_path, sizeof address.sun_path, path, length(path));
  call(__NR_unlinkat, AT_FDCWD, path, 0, 0);
  long fd = call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC | NONBLOCK, 0, 0);
  if (fd < 0) return fd;
  long failed = call(__NR_bind, fd, &address, sizeof address, 0);
  if (failed == 0) failed = call(__NR_listen, fd, queue, 0, 0);
  return failed < 0 ? failed : fd;
}

void kill_monitor(void) { call(__NR_kill, monitor.process, SIGKILL, 0, 0); }

void say_qmp(const char *command) { call(__NR_write, monitor.ends[QMP], command, length(command), 0); }

void say_control(const char *words) { call(__NR_write, monitor.ends[CONTROL], words, length(words), 0); }

void write_oom_score(void) {
  long fd = call(__NR_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
  if (fd >= 0) call(__NR_write, fd, OOM_SCORE, sizeof OOM_SCORE - 1, 0);
}

/* A monitor that the sandbox has taken over could fill the disk of the machine through the files of its disks. */
static void limit_files(void) {
  u64 bytes = (u64)monitor.file_mib << 20;
  const struct rlimit64 limit = {bytes, bytes};
  check("limit its files", call(__NR_prlimit64, 0, RLIMIT_FSIZE, &limit, 0));
}

__attribute__((noreturn)) static void become_monitor(const int given[DESCRIPTORS], int errors, long parent) {
  /* A write beyond the limit of its files fails then, instead of ending it. */
  static const u64 file_too_large = 1UL << (SIGXFSZ - 1);
  static char *environment[] = {"PATH=" DEFAULT_PATH, 0};
  for (int output = 1; output <= 2; output++) check("pass the output", call(__NR_dup3, errors, output, 0, 0));
  int moved[DESCRIPTORS];
  for (int i = 0; i < DESCRIPTORS; i++) {
    moved[i] = (int)call(__NR_fcntl, given[i], F_DUPFD_CLOEXEC, ABOVE, 0);
    check("move a descriptor", moved[i]);
  }
  for (int i = 0; i < DESCRIPTORS; i++)
    check("pass a descriptor", call(__NR_dup3, moved[i], monitor.inherited + i, 0, 0));
  write_oom_score();
  /* An abstract socket or an address of the machine is out of reach, also where its user could open one. */
  check("leave the network", call(__NR_unshare, CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS, 0, 0, 0));
  check("allow its signals", call(__NR_rt_sigprocmask, SIG_SETMASK, &file_too_large, 0, sizeof file_too_large));
  limit_files();
  drop_rights(monitor.user, monitor.also_group);
  restrict_files(monitor.inherited);
  /* The supervisor may have died before the kernel knew of its part. */
  if (call(__NR_getppid, 0, 0, 0, 0) != parent) leave(EXIT_NOT_STARTED);
  fail("start the monitor", execute(monitor.command, environment));
}

void open_errors(void) {
  int pipe[2];
  check("open a pipe", call(__NR_pipe2, pipe, O_CLOEXEC, 0, 0));
  monitor.errors = pipe[0];
  monitor.given_errors = pipe[1];
  call(__NR_fcntl, pipe[0], F_SETFL, O_NONBLOCK, 0);
}

void start_monitor(void) {
  int given[DESCRIPTORS];
  for (int i = 0; i < STREAMS; i++) {
    int pair[2];
    check("open a port", call(__NR_socketpair, FAMILY_UNIX, STREAM | O_CLOEXEC, 0, pair));
    monitor.ends[i] = pair[0];
    call(__NR_fcntl, pair[0], F_SETFL, O_RDWR | O_NONBLOCK, 0);
    given[i] = pair[1];
  }
  long agent = listen_at("agent.sock", 1);
  check("open the port of the agent", agent);
  given[AGENT] = (int)agent;
  long parent = call(__NR_getpid, 0, 0, 0, 0);
  monitor.process = call(__NR_clone, SIGCHLD, 0, 0, 0);
  check("start a process", monitor.process);
  if (monitor.process == 0) become_monitor(given, monitor.given_errors, parent);
  for (int i = 0; i < DESCRIPTORS; i++) call(__NR_close, given[i], 0, 0, 0);
  call(__NR_close, monitor.given_errors, 0, 0, 0);
}
