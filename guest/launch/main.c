/*
 * Starts the gateway: the program between sandboxes and the network, which reads what sandboxes and strangers send.
 *
 *   launch NAMESPACE USER
 *   launch NAMESPACE USER PROGRAM ARGUMENT...
 *
 * NAMESPACE and PROGRAM are inherited descriptors: of a network namespace, and of the program to start. Their paths may
 * be closed to USER, which is a number. ARGUMENT begins with the name of the program.
 *
 * Both enter the namespace and give up every right. Without a program, it opens the listeners and keeps them
 * (listeners.h), so that queries and connections wait in the kernel while one program replaces another. It writes a
 * line when they are open. With a program, it takes the listeners of the first and becomes the program. Neither can get
 * a right back. They leave no core dump, and die with the process that started them.
 */
#include "../common/execute.h"
#include "listeners.h"
#include <linux/capability.h>
#include <linux/fcntl.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>

#define EXIT_NOT_STARTED 125

__attribute__((noreturn)) static void fail(const char *what, long error) {
  char text[160];
  char *end = text;
  const char *parts[] = {"launch: cannot ", what, ": the kernel answers with the error "};
  for (int i = 0; i < 3; i++)
    for (const char *c = parts[i]; *c; c++) *end++ = *c;
  end = put_number(end, (u64)-error);
  *end++ = '\n';
  call(__NR_write, 2, text, end - text, 0);
  leave(EXIT_NOT_STARTED);
}

static void check(const char *what, long result) {
  if (result < 0) fail(what, result);
}

static long parse(const char *digits) {
  long number = 0;
  if (!*digits) fail("read the arguments", -EINVAL);
  for (; *digits; digits++) {
    if (*digits < '0' || *digits > '9' || number > 0xffffffffL) fail("read the arguments", -EINVAL);
    number = number * 10 + *digits - '0';
  }
  return number;
}

static void drop_rights(long user) {
  /* The service may lack the right to narrow this set. No program gets a capability from it without new privileges. */
  for (long capability = 0; capability <= CAP_LAST_CAP; capability++)
    call6(__NR_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0, 0);
  check("refuse new privileges", call6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0));
  check("leave its groups", call(__NR_setgroups, 0, 0, 0, 0));
  check("change its group", call(__NR_setresgid, user, user, user, 0));
  check("change its user", call(__NR_setresuid, user, user, user, 0));
  if (call(__NR_setresuid, -1, 0, -1, 0) == 0) fail("give up the user root", -EPERM);
  /* Secrets are in its memory. With a pipe in core_pattern the kernel ignores a limit of 0, but not one of 1. */
  const struct rlimit64 none = {1, 1};
  check("forbid core dumps", call(__NR_prlimit64, 0, RLIMIT_CORE, &none, 0));
  /* After the change of the user, which clears it. */
  check("die with the service", call6(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0));
}

__attribute__((used, noreturn)) void start(long *stack) {
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  char **environment = argv + argc + 1;
  if (argc != 3 && argc < 5) fail("read the arguments", -EINVAL);
  long namespace = parse(argv[1]);
  long user = parse(argv[2]);
  if (user == 0) fail("run the gateway as root", -EPERM);

  check("enter the network namespace", call(__NR_setns, namespace, CLONE_NEWNET, 0, 0));
  call(__NR_close, namespace, 0, 0, 0);
  if (argc == 3) {
    Kept kept;
    check("open the listeners", open_listeners(&kept));
    drop_rights(user);
    check("tell the service", call(__NR_write, 1, "\n", 1, 0));
    hand_out(&kept);
    leave(0);
  }
  long program = parse(argv[3]);
  check("take the listeners", take_listeners());
  drop_rights(user);
  check("hide the program", call(__NR_fcntl, program, F_SETFD, FD_CLOEXEC, 0));
  fail("start the program", call6(__NR_execveat, program, (long)"", (long)(argv + 4), (long)environment, AT_EMPTY_PATH, 0));
}
