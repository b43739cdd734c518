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
#include "../common/rights.h"
#include "listeners.h"
#include <linux/fcntl.h>
#include <linux/sched.h>

__attribute__((used, noreturn)) void start(long *stack) {
  program_name = "launch";
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  char **environment = argv + argc + 1;
  if (argc != 3 && argc < 5) fail("read the arguments", -EINVAL);
  long namespace = parse(argv[1]);
  long user = parse(argv[2]);

  check("enter the network namespace", call(__NR_setns, namespace, CLONE_NEWNET, 0, 0));
  call(__NR_close, namespace, 0, 0, 0);
  if (argc == 3) {
    Kept kept;
    check("open the listeners", open_listeners(&kept));
    drop_rights(user, 0);
    check("tell the service", call(__NR_write, 1, "\n", 1, 0));
    hand_out(&kept);
    leave(0);
  }
  long program = parse(argv[3]);
  check("take the listeners", take_listeners());
  drop_rights(user, 0);
  check("hide the program", call(__NR_fcntl, program, F_SETFD, FD_CLOEXEC, 0));
  fail("start the program", call6(__NR_execveat, program, (long)"", (long)(argv + 4), (long)environment, AT_EMPTY_PATH, 0));
}
