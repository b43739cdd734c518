#include "connections.h"
#include "frames.h"
#include "streams.h"
#include <linux/fcntl.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/socket.h>

/* No header of the kernel has these for programs. */
#define AF_INET_ 2
#define AF_INET6_ 10
#define SOCK_STREAM_ 1
#define SOL_SOCKET_ 1
#define SO_ERROR_ 4
#define SHUT_WR 1

void fail_connection(Channel *c, long error) {
  send_failure(c->id, 0, error);
  forget(c);
}

static void close_when_over(Channel *c) {
  if (!c->shut || c->out >= 0) return;
  send_outgoing(c->id, ANSWER_CLOSED, 0);
  forget(c);
}

void end_sending(Channel *c) {
  call(__NR_shutdown, c->in, SHUT_WR, 0, 0);
  c->shut = 1;
  close_when_over(c);
}

/* The socket stays open for input. */
void end_receiving(Channel *c) {
  c->out = -1;
  send_outgoing(c->id, ANSWER_ENDED, 0);
  close_when_over(c);
}

void finish_connect(Channel *c) {
  int error = 0, size = sizeof error;
  long failed = call6(__NR_getsockopt, c->in, SOL_SOCKET_, SO_ERROR_, (long)&error, (long)&size, 0);
  if (failed < 0 || error) return fail_connection(c, failed < 0 ? failed : -error);
  c->state = OPEN;
  c->out = c->in;
  send_outgoing(c->id, ANSWER_CONNECTED, 0);
  push_input(c);
}

void handle_connect(u32 id, Reader *from) {
  Channel *c = make(id);
  if (!c) return send_failure(id, STEP_FORK, -EAGAIN);
  c->state = CONNECTING;
  struct connect_layout head = take_connect(from);
  u8 family = head.family;
  c->credit = (long)head.credit;
  union {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } address;
  memset(&address, 0, sizeof address);
  long size = family == 6 ? sizeof address.v6 : sizeof address.v4;
  u8 *to = family == 6 ? (u8 *)&address.v6.sin6_addr : (u8 *)&address.v4.sin_addr;
  for (int i = 0; i < (family == 6 ? 16 : 4); i++) to[i] = (u8)take(from, 1);
  if (from->bad || (family != 4 && family != 6)) return fail_connection(c, -EINVAL);
  address.v4.sin_family = family == 6 ? AF_INET6_ : AF_INET_;
  address.v4.sin_port = (u16)(head.port << 8 | head.port >> 8);
  long fd = call(__NR_socket, address.v4.sin_family, SOCK_STREAM_ | O_CLOEXEC | O_NONBLOCK, 0, 0);
  if (fd < 0) return fail_connection(c, fd);
  c->in = (int)fd;
  long failed = call(__NR_connect, c->in, &address, size, 0);
  if (failed == -EINPROGRESS) return;
  if (failed < 0) return fail_connection(c, failed);
  finish_connect(c);
}
