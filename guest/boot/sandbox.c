#include "sandbox.h"
#include "../common/execute.h"
#include "../common/users.h"
#include "configuration.h"
#include "failure.h"
#include "files.h"
#include "handoff.h"
#include "mounts.h"
#include "rights.h"
#include "root.h"
#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>

#define INIT "/.sandkeep/bin/init"
#define GROUP "/sys/fs/cgroup/sandbox"
/* A group with controllers for others has no processes of its own, and process 1 may want to give them. */
#define GROUP_BESIDE GROUP "/sandkeep"
#define RECORD_DESCRIPTOR 3
#define RECORD_OPTION "--record-copy=3"
#define LISTENER_DESCRIPTOR 4
#define BESIDE_OPTION "--beside=4"

/* The counts of the control group are those of the sandbox alone. */
static void make_control_group(void) {
  need(call6(__NR_mount, (long)"cgroup2", (long)"/sys/fs/cgroup", (long)"cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0, 0),
       "mount", "/sys/fs/cgroup");
  /* One that the kernel lacks refuses its write alone. */
  write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
  write_text("/sys/fs/cgroup/cgroup.subtree_control", "+pids");
  need(call(__NR_mkdirat, AT_FDCWD, GROUP, 0755, 0), "make the control group", GROUP);
}

static void enter_control_group(void) {
  need(write_text(GROUP "/cgroup.procs", "0"), "enter the control group", GROUP);
  need(call(__NR_unshare, CLONE_NEWCGROUP, 0, 0, 0), "leave the control group of the machine", 0);
}

/* The names of the machine end here: paths are those of the sandbox from now on. */
static void enter_root(void) {
  need(call(__NR_chdir, ROOT, 0, 0, 0), "enter", ROOT);
  need(call6(__NR_mount, (long)".", (long)"/", 0, MS_MOVE, 0, 0), "move", ROOT);
  need(call(__NR_chroot, ".", 0, 0, 0), "enter", ROOT);
  need(call(__NR_chdir, "/", 0, 0, 0), "enter", "/");
}

static void set_limits(void) {
  for (int i = 0; i < configuration.limit_count; i++)
    need(call(__NR_prlimit64, 0, configuration.limits[i].resource, &configuration.limits[i].value, 0), "set a limit", 0);
}

/* A part that cannot be made stays missing: the command then says so (../init/workdir.h). */
static void make_workdir(const User *user) {
  if (!configuration.workdir) return;
  for (char *c = configuration.workdir + 1;; c++) {
    if (*c && *c != '/') continue;
    const char end = *c;
    *c = 0;
    if (call(__NR_mkdirat, AT_FDCWD, configuration.workdir, 0755, 0) == 0)
      call6(__NR_fchownat, AT_FDCWD, (long)configuration.workdir, user->uid, user->gid, 0, 0);
    *c = end;
    if (!end) return;
  }
}

static void become_user(void) {
  static User user;
  static char home[PATH_ROOM + 8];
  const char *name = configuration.user ? configuration.user : "0";
  need(find_user(name, &user), "find the user", name);
  make_workdir(&user);
  join(home, sizeof home, "HOME=", user.home, (char *)0);
  if (!value_of(configuration.environment, "HOME=")) configuration.environment[configuration.variable_count] = home;
  need(call(__NR_setgroups, user.group_count, user.groups, 0, 0), "set the groups of", name);
  if (configuration.restricted) forbid_rights();
  need(call(__NR_setresgid, user.gid, user.gid, user.gid, 0), "set the group of", name);
  need(call(__NR_setresuid, user.uid, user.uid, user.uid, 0), "become the user", name);
  if (configuration.restricted) drop_capabilities();
}

static void give(int from, int to) { need(call(__NR_dup3, from, to, 0, 0), "pass a descriptor to", INIT); }

/* `given`: above the numbers that they get. */
static void give_all(const int given[GIVEN]) {
  for (int i = 0; i < GIVEN; i++)
    if (given[i] >= 0) give(given[i], i);
}

__attribute__((noreturn)) static void run_init(const char *option, int has_command) {
  static char *arguments[LIMIT_TEXTS + 5];
  u32 n = 0, taken = 0;
  arguments[n++] = INIT;
  arguments[n++] = RECORD_OPTION;
  if (option) arguments[n++] = (char *)option;
  while (taken < configuration.argument_count) {
    char *argument = configuration.arguments[taken++];
    arguments[n++] = argument;
    if (!has_command && same(argument, "--", 3)) break;
  }
  give_up("run", INIT, call(__NR_execve, INIT, arguments, configuration.environment, 0));
}

void become_beside(const struct sandbox *sandbox, int mounts, int groups, int has_command) {
  call(__NR_setpriority, PRIO_PROCESS, 0, 0, 0);
  call(__NR_mkdirat, AT_FDCWD, GROUP_BESIDE, 0755, 0);
  need(write_text(GROUP_BESIDE "/cgroup.procs", "0"), "enter the control group", GROUP_BESIDE);
  need(call(__NR_setns, groups, CLONE_NEWCGROUP, 0, 0), "enter the control groups of", "process 1");
  /* With it comes the root of the sandbox. */
  need(call(__NR_setns, mounts, CLONE_NEWNS, 0, 0), "enter the mounts of", "process 1");
  set_limits();
  become_user();
  call(__NR_setsid, 0, 0, 0, 0);
  give_all(sandbox->given);
  run_init(BESIDE_OPTION, has_command);
}

__attribute__((noreturn)) static void become_process_1(const int given[GIVEN]) {
  enter_control_group();
  /* The priority of this process is that of process 1 of the machine. */
  call(__NR_setpriority, PRIO_PROCESS, 0, 0, 0);
  /* Before the root of the machine is gone. */
  long programs = open_programs();
  enter_root();
  mount_sandbox_files((int)programs);
  set_limits();
  if (is_handed_off()) {
    for (int i = 0; i <= STREAMS; i++) give(given[i], i);
    become_handed_off();
  }
  become_user();
  call(__NR_setsid, 0, 0, 0, 0);
  give_all(given);
  run_init(0, 1);
}

/* Above the numbers that the child gives away. */
static int high(int fd) {
  long moved = need(call(__NR_fcntl, fd, F_DUPFD_CLOEXEC, LISTENER_DESCRIPTOR + 1, 0), "move a descriptor", 0);
  call(__NR_close, fd, 0, 0, 0);
  return (int)moved;
}

static void make_pipe(int pair[2]) {
  need(call(__NR_pipe2, pair, O_CLOEXEC, 0, 0), "make a pipe", 0);
  pair[0] = high(pair[0]);
  pair[1] = high(pair[1]);
}

struct sandbox start_sandbox(void) {
  struct sandbox sandbox;
  int input[2], output[STREAMS][2], record[2], failure[2];
  make_control_group();
  /* The write end of the input stays open: a shell without a script would end at the end of its input. */
  make_pipe(input);
  make_pipe(record);
  make_pipe(failure);
  for (int i = 0; i < STREAMS; i++) make_pipe(output[i]);
  const int listener = is_handed_off() ? high((int)open_listener()) : -1;
  long child = need(call(__NR_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0), "start", INIT);
  const int given[GIVEN] = {input[0], output[0][1], output[1][1], record[1], listener};
  if (child == 0) {
    failure_pipe = failure[1];
    become_process_1(given);
  }
  sandbox.process = (int)child;
  memcpy(sandbox.given, given, sizeof given);
  call(__NR_close, failure[1], 0, 0, 0);
  if (!is_handed_off()) close_given(&sandbox);
  int *reads[] = {&sandbox.record, &sandbox.failure, &sandbox.output[0], &sandbox.output[1]};
  int *pairs[] = {record, failure, output[0], output[1]};
  for (int i = 0; i < 2 + STREAMS; i++) {
    *reads[i] = pairs[i][0];
    call(__NR_fcntl, pairs[i][0], F_SETFL, O_RDONLY | O_NONBLOCK, 0);
  }
  return sandbox;
}
