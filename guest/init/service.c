#include "service.h"
#include "../common/text.h"
#include <linux/fcntl.h>
#include <linux/socket.h>
#include <linux/un.h>

#define FAMILY_UNIX 1
#define STREAM 1
#define LEVEL_SOCKET 1
#define PEER_CREDENTIALS 17
#define PR_SET_DUMPABLE 4
#define NONBLOCK 04000

/* No header of the kernel has it for programs. */
struct credentials {
  int pid;
  u32 user;
  u32 group;
};

/* Root of the sandbox could take the listener, and pose as process 1. */
static void hide_descriptors(void) { call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0); }

long take_listener(int listener) {
  hide_descriptors();
  call(__NR_fcntl, listener, F_SETFD, FD_CLOEXEC, 0);
  return listener;
}

long listen_for_service(const char *name) {
  struct sockaddr_un address;
  u64 n = length(name);
  memset(&address, 0, sizeof address);
  address.sun_family = FAMILY_UNIX;
  memcpy(address.sun_path + 1, name, n);
  hide_descriptors();
  long listener = call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC | NONBLOCK, 0, 0);
  if (listener < 0) return listener;
  long failed = call(__NR_bind, listener, &address, sizeof address.sun_family + 1 + n, 0);
  if (failed == 0) failed = call(__NR_listen, listener, QUEUE, 0, 0);
  if (failed == 0) return listener;
  call(__NR_close, listener, 0, 0, 0);
  return failed;
}

/* The kernel numbers processes by namespace. One of the sandbox has a number here, and the service has none. */
int is_service(int connection) {
  struct credentials peer;
  int size = sizeof peer;
  return call6(__NR_getsockopt, connection, LEVEL_SOCKET, PEER_CREDENTIALS, (long)&peer, (long)&size, 0) == 0 &&
         peer.pid == 0;
}

void close_ways(struct ways *ways) {
  if (ways->agents >= 0) call(__NR_close, ways->agents, 0, 0, 0);
  if (ways->handovers >= 0) call(__NR_close, ways->handovers, 0, 0, 0);
  ways->agents = ways->handovers = -1;
}
