#include "listeners.h"
#include <linux/fcntl.h>
#include <linux/in.h>

#define FAMILY_V4 2
#define STREAM 1
#define DATAGRAM 2
/* The kernel uses its own bound (net.core.somaxconn) where that is lower. */
#define BACKLOG 4096
#define LEVEL_SOCKET 1
#define REUSE_ADDRESS 2

/* 169.254.7.53 */
#define GATEWAY_ADDRESS 0xa9fe0735u

typedef struct {
  int type;
  u32 address;
  u16 port;
} Listener;

static const Listener listeners[LISTENERS] = {
    {DATAGRAM, GATEWAY_ADDRESS, 53},    {STREAM, GATEWAY_ADDRESS, 53}, {DATAGRAM, GATEWAY_ADDRESS, 5300},
    {STREAM, GATEWAY_ADDRESS, 5300}, {STREAM, 0, 15001},
};

static u32 network_order(u32 n) { return n >> 24 | (n >> 8 & 0xff00) | (n << 8 & 0xff0000) | n << 24; }

static long set(long fd, int level, int option) {
  int on = 1;
  return call6(__NR_setsockopt, fd, level, option, (long)&on, sizeof on, 0);
}

static long open_one(const Listener *wanted) {
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = FAMILY_V4;
  address.sin_port = (u16)(wanted->port << 8 | wanted->port >> 8);
  address.sin_addr.s_addr = network_order(wanted->address);
  long fd = call(__NR_socket, FAMILY_V4, wanted->type | O_CLOEXEC | O_NONBLOCK, 0, 0);
  if (fd < 0) return fd;
  /* Connections of an earlier gateway linger on the port. With this option two UDP sockets could share it. */
  long failed = wanted->type == STREAM ? set(fd, LEVEL_SOCKET, REUSE_ADDRESS) : 0;
  /* Without an address of its own, it takes connections to every destination. */
  if (failed == 0 && wanted->address == 0) failed = set(fd, IPPROTO_IP, IP_TRANSPARENT);
  if (failed == 0) failed = call(__NR_bind, fd, &address, sizeof address, 0);
  if (failed == 0 && wanted->type == STREAM) failed = call(__NR_listen, fd, BACKLOG, 0, 0);
  return failed < 0 ? failed : fd;
}

long open_listeners(void) {
  for (int i = 0; i < LISTENERS; i++) {
    long fd = open_one(&listeners[i]);
    if (fd < 0) return fd;
    long wanted = FIRST_LISTENER + i;
    if (fd == wanted) {
      call(__NR_fcntl, fd, F_SETFD, 0, 0);
      continue;
    }
    long moved = call(__NR_dup3, fd, wanted, 0, 0);
    if (moved < 0) return moved;
    call(__NR_close, fd, 0, 0, 0);
  }
  return 0;
}
