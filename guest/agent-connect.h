/*
 * TCP connections of the agent. A request: address family (u8, 4 or 6), port (u16), address (4 or 16 bytes). The control
 * plane resolves names before, with the servers of the sandbox.
 */
static void end_of_output(Channel *c) {
  if (c->state == OPEN) {
    c->out = -1;
    send_outgoing(c->id, ENDED, 0);
    return;
  }
  if (c->out == c->in) c->in = -1;
  close_fd(&c->out);
  finish_if_over(c);
}

static void fail_connect(Channel *c, long error) {
  u32 id = c->id;
  forget(c);
  send_failure(id, 0, error);
}

static void finish_connect(Channel *c) {
  int error = 0, size = sizeof error;
  long failed = call6(__NR_getsockopt, c->in, SOL_SOCKET_, SO_ERROR_, (long)&error, (long)&size, 0);
  if (failed < 0 || error) return fail_connect(c, failed < 0 ? failed : -error);
  c->state = OPEN;
  c->out = c->in;
  send_outgoing(c->id, CONNECTED, 0);
  push_input(c);
}

static void handle_connect(u32 id, Reader *from) {
  Channel *c = make(id);
  if (!c) return send_failure(id, STEP_FORK, -EAGAIN);
  c->state = CONNECTING;
  c->credit = take(from, 4);
  u8 family = (u8)take(from, 1);
  u16 port = (u16)take(from, 2);
  union {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } address;
  memset(&address, 0, sizeof address);
  long size = family == 6 ? sizeof address.v6 : sizeof address.v4;
  u8 *to = family == 6 ? (u8 *)&address.v6.sin6_addr : (u8 *)&address.v4.sin_addr;
  for (int i = 0; i < (family == 6 ? 16 : 4); i++) to[i] = (u8)take(from, 1);
  if (from->bad || (family != 4 && family != 6)) return fail_connect(c, -EINVAL);
  address.v4.sin_family = family == 6 ? 10 : 2;
  address.v4.sin_port = (u16)(port << 8 | port >> 8);
  c->in = (int)call(__NR_socket, address.v4.sin_family, 1 /* stream */ | O_CLOEXEC | O_NONBLOCK, 0, 0);
  if (c->in < 0) return fail_connect(c, c->in);
  long failed = call(__NR_connect, c->in, &address, size, 0);
  if (failed == -EINPROGRESS) return;
  if (failed < 0) return fail_connect(c, failed);
  finish_connect(c);
}
