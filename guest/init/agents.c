#include "agents.h"
#include "../common/kernel.h"
#include "service.h"
#include <linux/fcntl.h>

#define AGENT "/.sandkeep/bin/agent"
#define ABOVE_STREAMS 3
#define EXIT_NOT_RUNNABLE 126

static void run_agent(int connection, char **environment) {
  static char *arguments[] = {AGENT, 0};
  static const unsigned long none = 0;
  call(__NR_setsid, 0, 0, 0, 0);
  call(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
  call(__NR_chdir, "/", 0, 0, 0);
  /* Process 1 without a command has closed its own output, whose numbers the kernel gives out again. */
  connection = call(__NR_fcntl, connection, F_DUPFD_CLOEXEC, ABOVE_STREAMS, 0);
  call(__NR_dup3, connection, 0, 0, 0);
  call(__NR_dup3, connection, 1, 0, 0);
  /* The agent writes no errors, and the engine would keep them as output of the command. */
  call(__NR_close, 2, 0, 0, 0);
  call(__NR_openat, AT_FDCWD, "/dev/null", O_WRONLY, 0);
  call(__NR_execve, AGENT, arguments, environment, 0);
  leave(EXIT_NOT_RUNNABLE);
}

int admit_agents(int listener, char **environment) {
  /* Processes of the sandbox may connect without end, and process 1 has other work. */
  for (int i = 0; i < QUEUE; i++) {
    long connection = call(__NR_accept4, listener, 0, 0, O_CLOEXEC);
    if (connection == -EAGAIN) break;
    if (connection == -EINTR || connection == -ECONNABORTED) continue;
    if (connection < 0) {
      /* The connection stays in the queue, so process 1 would try again without end. */
      call(__NR_close, listener, 0, 0, 0);
      return -1;
    }
    if (is_service(connection) && call(__NR_clone, SIGCHLD, 0, 0, 0) == 0) run_agent(connection, environment);
    call(__NR_close, connection, 0, 0, 0);
  }
  return listener;
}
