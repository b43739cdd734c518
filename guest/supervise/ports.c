#include "ports.h"
#include "../common/fail.h"
#include <linux/fcntl.h>
#include <linux/in.h>

#define FAMILY_V4 2
#define LEVEL_SOCKET 1
#define REUSE_ADDRESS 2

static u32 network_order(u32 n) { return n >> 24 | (n >> 8 & 0xff00) | (n << 8 & 0xff0000) | n << 24; }

void hold_port(const struct held_port *held) {
  struct sockaddr_in address = {.sin_family = FAMILY_V4};
  address.sin_port = (u16)(held->port << 8 | held->port >> 8);
  address.sin_addr.s_addr = network_order(held->address);
  long fd = call(__NR_socket, FAMILY_V4, held->type | O_CLOEXEC, 0, 0);
  check("open a port of the machine", fd);
  int on = 1;
  /* Connections of an earlier program linger on the port. With this option two UDP sockets could share it. */
  if (held->type == HELD_TCP)
    check("open a port of the machine", call6(__NR_setsockopt, fd, LEVEL_SOCKET, REUSE_ADDRESS, (long)&on, sizeof on, 0));
  check("take a port of the machine", call(__NR_bind, fd, &address, sizeof address, 0));
  /* Without it, a program that reuses addresses could take the port too. */
  if (held->type == HELD_TCP) check("take a port of the machine", call(__NR_listen, fd, 0, 0, 0));
}
