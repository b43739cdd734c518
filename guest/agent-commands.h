/*
 * Commands of the agent. A command has a session and a process group of its own, and pipes or a terminal. The child process reports
 * the step that failed by a pipe, which closes when the program starts.
 *
 * A command is over when it has ended and its output has. Processes that it left behind may hold the output open: they get LINGER
 * milliseconds, and the agent sends what the pipes hold by then.
 */
/* The flags of a command. Only a control plane that has read FEATURES sends the second. */
#define HAS_TTY 1
#define MAY_LEAVE_CWD 2 /* its working directory is a default: without it, the command runs in the root directory */
#define FEATURES 1 /* knows MAY_LEAVE_CWD */
#ifndef SMALL_TABLES
#define ARGUMENTS_MAX 16384
#endif
#define LIMITS_MAX 32
#define LINGER 1000
#define LINGER_OUTPUT (1 << 20) /* no pipe holds more */

/* Tells the agent why a start failed, or the result of work in the background. */
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
  int may_leave_cwd;
  u16 rows, cols;
  int limit_count;
  Limit limits[LIMITS_MAX];
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

/* Without a directory it is the one in which the agent was started. The kernel also enters a directory that was removed. */
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
  static char home[PATH_ROOM + 8] = "HOME=";
  u64 none = 0;
  long failed;
  call(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
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

static void handle_exec(u32 id, Reader *from) {
  static char *texts[ARGUMENTS_MAX + 4]; /* two ends, HOME */
  static Command command;
  Channel *c = make(id);
  if (!c) return send_failure(id, STEP_FORK, -EAGAIN);
  int flags = (int)take(from, 1);
  command.tty = flags & HAS_TTY;
  command.may_leave_cwd = flags & MAY_LEAVE_CWD;
  command.rows = (u16)take(from, 2);
  command.cols = (u16)take(from, 2);
  c->credit = (long)take(from, 4);
  u32 argc = (u32)take(from, 2), envc = (u32)take(from, 2);
  command.limit_count = (int)take(from, 1);
  if (argc == 0 || argc + envc > ARGUMENTS_MAX || command.limit_count > LIMITS_MAX) from->bad = 1;
  for (int i = 0; !from->bad && i < command.limit_count; i++) {
    command.limits[i].resource = (u8)take(from, 1);
    command.limits[i].value.rlim_cur = take(from, 8);
    command.limits[i].value.rlim_max = take(from, 8);
  }
  command.user = take_text(from);
  command.cwd = take_text(from);
  char **slot = command.argv = texts;
  for (u32 i = 0; !from->bad && i < argc; i++) *slot++ = take_text(from);
  *slot++ = 0;
  command.environment = slot;
  for (u32 i = 0; !from->bad && i < envc; i++) *slot++ = take_text(from);
  *slot = 0;
  if (from->bad) {
    send_failure(id, STEP_ARGUMENTS, -EINVAL);
    forget(c);
    return;
  }
  start_command(c, &command);
}

static void report_start(Channel *c, long error, u8 step) {
  if (error) {
    send_failure(c->id, step, -error);
    forget(c);
    return;
  }
  c->state = RUNNING;
  send_number(c->id, STARTED, (u32)c->group);
  push_input(c);
}

static void finish_if_over(Channel *c) {
  if (c->state != RUNNING || c->pid != 0 || c->out >= 0 || c->err >= 0) return;
  send_exit(c->id, (u32)c->status, c->oom);
  forget(c);
}

static int lingers(const Channel *c) { return c->state == RUNNING && c->pid == 0; }

/* Ends the output of a command that has ended, when processes that it left behind hold it open. */
static void end_lingering(Channel *c, int *fd, int has_output) {
  if (!lingers(c) || *fd < 0 || c->credit <= 0 || now() - c->exited_at < LINGER) return;
  if (has_output && c->lingered < LINGER_OUTPUT) return;
  end_stream(c, fd);
}

static void reap(void) {
  int status;
  long ended;
  while ((ended = call(__NR_wait4, -1, &status, WNOHANG, 0)) > 0) {
    for (int i = 0; i < CHANNELS; i++) {
      Channel *c = &channels[i];
      if (c->state == FREE || c->pid != (int)ended) continue;
      c->status = exit_code(status);
      c->oom = (u8)oom_killed(c->status, c->kills_before);
      c->pid = 0;
      c->exited_at = now();
      finish_if_over(c);
    }
  }
}
