#include "commands.h"
#include "../common/execute.h"
#include "../common/oom.h"
#include "../common/users.h"
#include "frames.h"
#include "reports.h"
#include "streams.h"
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <linux/fcntl.h>
#include <linux/resource.h>
#include <linux/wait.h>

#define LINGER 1000
#define LINGER_OUTPUT (1 << 20) /* no pipe holds more */

/* The directory in which the agent was started. */
static int first_directory = -1;
static const char *own_home = "/";

typedef struct {
  u8 resource;
  struct rlimit64 value;
} Limit;

typedef struct {
  int tty;
  int may_leave_cwd;
  u16 rows, cols;
  int limit_count;
  Limit limits[LIMIT_RLIMITS];
  char *user;
  char *cwd;
  char **argv;
  char **environment;
} Command;

/* Without CAP_SETGID and CAP_SETUID only a change to the present user and group succeeds, and the groups stay. */
static long change_user(const User *user) {
  int same_user = (u32)call(__NR_geteuid, 0, 0, 0, 0) == user->uid && (u32)call(__NR_getegid, 0, 0, 0, 0) == user->gid;
  long failed = call(__NR_setgroups, user->group_count, user->groups, 0, 0);
  if (failed < 0 && !same_user) return failed;
  failed = call(__NR_setresgid, user->gid, user->gid, user->gid, 0);
  if (failed < 0) return failed;
  return call(__NR_setresuid, user->uid, user->uid, user->uid, 0);
}

static void tell(const char *text) { call(__NR_write, 2, text, length(text), 0); }

static const char *cause_of(long error) {
  switch (error) {
    case -ENOENT: return "it does not exist";
    case -ENOTDIR: return "it is not a directory";
    case -EACCES: return "permission denied";
    case -ELOOP: return "too many symbolic links";
    default: return "the kernel refused it";
  }
}

void keep_defaults(char **environment) {
  const char *home = value_of(environment, "HOME=");
  if (home && home[0]) own_home = home;
  first_directory = (int)call(__NR_openat, AT_FDCWD, ".", O_PATH | O_CLOEXEC, 0);
}

/* Without a directory it is the one in which the agent was started. The kernel also enters a directory that was
   removed. */
static long enter_directory(const char *cwd) {
  static char path[PATH_ROOM];
  if (cwd[0]) return call(__NR_chdir, cwd, 0, 0, 0);
  long failed = call(__NR_fchdir, first_directory, 0, 0, 0);
  if (failed >= 0) failed = call(__NR_getcwd, path, sizeof path, 0, 0);
  return failed == -ERANGE ? 0 : failed;
}

static long leave_directory(const char *cwd, long error) {
  long failed = call(__NR_chdir, "/", 0, 0, 0);
  if (failed < 0) return error;
  tell("sandkeep: the working directory ");
  if (cwd[0]) tell("\""), tell(cwd), tell("\" ");
  tell("of the sandbox cannot be entered: ");
  tell(cause_of(error));
  tell("; the command runs in /\n");
  return 0;
}

/* The rest of a start, in the child. */
static void become(int report, const Command *command) {
  static User user;
  /* Not initialized: that would be 4 KiB of the program. */
  static char home[PATH_ROOM + 8];
  u64 none = 0;
  long failed;
  call(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
  copy_text(home, sizeof home, "HOME=", 5);
  if (!command->user[0]) {
    copy_text(home + 5, sizeof home - 5, own_home, length(own_home));
  } else {
    if ((failed = find_user(command->user, &user)) < 0) give_up(report, STEP_USER, failed);
    copy_text(home + 5, sizeof home - 5, user.home, length(user.home));
    if (command->tty) call(__NR_fchown, 0, user.uid, user.gid, 0);
    if ((failed = change_user(&user)) < 0) give_up(report, STEP_USER, failed);
  }
  /* A change of the user clears the signal. */
  die_with_agent();
  failed = enter_directory(command->cwd);
  if (failed < 0 && command->may_leave_cwd) failed = leave_directory(command->cwd, failed);
  if (failed < 0) give_up(report, STEP_CWD, failed);
  if (!value_of(command->environment, "HOME=")) {
    char **last = command->environment;
    while (*last) last++;
    last[0] = home;
    last[1] = 0;
  }
  /* Last: the steps before need files and memory. */
  for (int i = 0; i < command->limit_count; i++) {
    failed = call(__NR_prlimit64, 0, command->limits[i].resource, &command->limits[i].value, 0);
    if (failed < 0) give_up(report, STEP_LIMIT, failed);
  }
  give_up(report, STEP_EXEC, execute(command->argv, command->environment));
}

static long open_pty(const Command *command, int *slave) {
  /* Without blocking: the sandbox may have put another file there. */
  long master = call(__NR_openat, AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK, 0);
  if (master < 0) return master;
  int unlock = 0;
  call(__NR_ioctl, master, TIOCSPTLCK, &unlock, 0);
  *slave = (int)call(__NR_ioctl, master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
  if (*slave < 0) {
    call(__NR_close, master, 0, 0, 0);
    return *slave;
  }
  u16 size[4] = {command->rows, command->cols, 0, 0};
  call(__NR_ioctl, master, TIOCSWINSZ, size, 0);
  return master;
}

static void set_nonblocking(int fd) {
  long flags = call(__NR_fcntl, fd, F_GETFL, 0, 0);
  call(__NR_fcntl, fd, F_SETFL, flags | O_NONBLOCK, 0);
}

/* Opens what the command gets as descriptors 0 to 2, and the agent's ends. Returns a negative errno, and the step. */
static long open_streams(Channel *c, const Command *command, int given[3], int *report, u8 *step) {
  int pair[2];
  long failed;
  *step = STEP_FORK;
  if ((failed = call(__NR_pipe2, pair, O_CLOEXEC, 0, 0)) < 0) return failed;
  c->report = pair[0], *report = pair[1];
  if (command->tty) {
    *step = STEP_PTY;
    if ((failed = open_pty(command, &given[0])) < 0) return failed;
    c->in = c->out = (int)failed;
    return 0;
  }
  if ((failed = call(__NR_pipe2, pair, O_CLOEXEC, 0, 0)) < 0) return failed;
  given[0] = pair[0], c->in = pair[1];
  if ((failed = call(__NR_pipe2, pair, O_CLOEXEC, 0, 0)) < 0) return failed;
  c->out = pair[0], given[1] = pair[1];
  if ((failed = call(__NR_pipe2, pair, O_CLOEXEC, 0, 0)) < 0) return failed;
  c->err = pair[0], given[2] = pair[1];
  set_nonblocking(c->in);
  set_nonblocking(c->out);
  set_nonblocking(c->err);
  return 0;
}

static void start_command(Channel *c, const Command *command) {
  int given[3] = {-1, -1, -1}, report = -1;
  u8 step;
  long failed = open_streams(c, command, given, &report, &step);
  c->kills_before = oom_kills();
  if (failed >= 0) {
    step = STEP_FORK;
    failed = fork_process();
  }
  if (failed == 0) {
    call(__NR_setsid, 0, 0, 0, 0);
    if (command->tty) call(__NR_ioctl, given[0], TIOCSCTTY, 0, 0);
    for (int i = 0; i < 3; i++) call(__NR_dup3, command->tty ? given[0] : given[i], i, 0, 0);
    become(report, command);
  }
  for (int i = 0; i < 3; i++) close_fd(&given[i]);
  close_fd(&report);
  if (failed < 0) {
    send_failure(c->id, step, failed);
    forget(c);
    return;
  }
  c->state = STARTING;
  c->pid = c->group = (int)failed;
  c->tty = command->tty;
}

void handle_exec(u32 id, Reader *from) {
  static char *texts[TEXTS_MAX + 4]; /* two ends, HOME */
  static Command command;
  Channel *c = make(id);
  if (!c) return send_failure(id, STEP_FORK, -EAGAIN);
  struct exec_layout head = take_exec(from);
  c->credit = (long)head.credit;
  command.tty = head.flags & COMMAND_HAS_TTY;
  command.may_leave_cwd = head.flags & COMMAND_MAY_LEAVE_CWD;
  command.rows = head.rows;
  command.cols = head.cols;
  command.limit_count = head.limits;
  if (head.args == 0 || head.args + head.env > TEXTS_MAX || head.limits > LIMIT_RLIMITS) from->bad = 1;
  for (int i = 0; !from->bad && i < head.limits; i++) {
    struct limit_layout limit = take_limit(from);
    command.limits[i] = (Limit){limit.resource, {limit.soft, limit.hard}};
  }
  command.user = take_text(from);
  command.cwd = take_text(from);
  char **slot = command.argv = texts;
  for (u32 i = 0; !from->bad && i < head.args; i++) *slot++ = take_text(from);
  *slot++ = 0;
  command.environment = slot;
  for (u32 i = 0; !from->bad && i < head.env; i++) *slot++ = take_text(from);
  *slot = 0;
  if (from->bad) {
    send_failure(id, STEP_ARGUMENTS, -EINVAL);
    forget(c);
    return;
  }
  start_command(c, &command);
}

void report_start(Channel *c, long error, u8 step) {
  if (error) {
    send_failure(c->id, step, -error);
    forget(c);
    return;
  }
  c->state = RUNNING;
  send_number(c->id, ANSWER_STARTED, (u32)c->group);
  push_input(c);
}

void finish_if_over(Channel *c) {
  if (c->state != RUNNING || c->pid != 0 || c->out >= 0 || c->err >= 0) return;
  send_exit(c->id, (u32)c->status, c->oom);
  forget(c);
}

int lingers(const Channel *c) { return c->state == RUNNING && c->pid == 0; }

void end_lingering(Channel *c, int *fd, int has_output) {
  if (!lingers(c) || *fd < 0 || c->credit <= 0 || now() - c->exited_at < LINGER) return;
  if (has_output && c->lingered < LINGER_OUTPUT) return;
  end_stream(c, fd);
}

void reap(void) {
  int status;
  long ended;
  while ((ended = call(__NR_wait4, -1, &status, WNOHANG, 0)) > 0) {
    for (int i = 0; i < CHANNELS; i++) {
      Channel *c = &channels[i];
      if (c->state == FREE || c->pid != (int)ended) continue;
      c->status = exit_code(status);
      c->oom = oom_killed(c->status, c->kills_before);
      c->pid = 0;
      c->exited_at = now();
      finish_if_over(c);
    }
  }
}
