#include "agents.h"
#include "../common/kernel.h"
#include <linux/fcntl.h>
#include <linux/socket.h>
#include <linux/un.h>

#define AGENT "/.sandkeep/bin/agent"
/* As in guest/connect. */
#define NAME "sandkeep-agent"
#define FAMILY_UNIX 1
#define STREAM 1
#define LEVEL_SOCKET 1
#define PEER_CREDENTIALS 17
#define PR_SET_DUMPABLE 4
#define NONBLOCK 04000
#define QUEUE 16
#define ABOVE_STREAMS 3
#define EXIT_NOT_RUNNABLE 126

/* No header of the kernel has it for programs. */
struct credentials {
  int pid;
  u32 user;
  u32 group;
};

long listen_for_service(void) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = FAMILY_UNIX;
  memcpy(address.sun_path + 1, NAME, sizeof NAME - 1);
  /* Root of the sandbox could take the listener, and pose as process 1. */
  call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
  long listener = call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC | NONBLOCK, 0, 0);
  if (listener < 0) return listener;
  long failed = call(__NR_bind, listener, &address, sizeof address.sun_family + sizeof NAME, 0);
  if (failed == 0) failed = call(__NR_listen, listener, QUEUE, 0, 0);
  if (failed == 0) return listener;
  call(__NR_close, listener, 0, 0, 0);
  return failed;
}

/* The kernel numbers processes by namespace. One of the sandbox has a number here, and the service has none. */
static int is_service(int connection) {
  struct credentials peer;
  int size = sizeof peer;
  return call6(__NR_getsockopt, connection, LEVEL_SOCKET, PEER_CREDENTIALS, (long)&peer, (long)&size, 0) == 0 &&
         peer.pid == 0;
}

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
      refuse_agents(listener);
      return -1;
    }
    if (is_service(connection) && call(__NR_clone, SIGCHLD, 0, 0, 0) == 0) run_agent(connection, environment);
    call(__NR_close, connection, 0, 0, 0);
  }
  return listener;
}

void refuse_agents(int listener) { call(__NR_close, listener, 0, 0, 0); }
