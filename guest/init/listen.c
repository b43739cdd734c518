#include "listen.h"
#include <linux/fcntl.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/socket.h>

#define FAMILY_V4 2
#define FAMILY_V6 10
#define STREAM 1
#define BACKLOG 4096

static long listen_in(int family, u16 port) {
  union {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } any;
  memset(&any, 0, sizeof any);
  any.v4.sin_family = family;
  any.v4.sin_port = (u16)(port << 8 | port >> 8);
  long fd = call(__NR_socket, family, STREAM | O_CLOEXEC, 0, 0);
  if (fd < 0) return fd;
  long failed = call(__NR_bind, fd, &any, family == FAMILY_V6 ? sizeof any.v6 : sizeof any.v4, 0);
  return failed < 0 ? failed : call(__NR_listen, fd, BACKLOG, 0, 0);
}

/* With IPv6, one socket serves both families. */
long listen_on(long port) {
  return listen_in(FAMILY_V6, (u16)port) < 0 ? listen_in(FAMILY_V4, (u16)port) : 0;
}
