#include "attempts.h"
#include <linux/fcntl.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/tcp.h>
#include <linux/time.h>
#include <linux/time_types.h>
#include <linux/un.h>

/* No header of the kernel has these for programs. */
#define FAMILY_UNIX 1
#define FAMILY_V4 2
#define FAMILY_V6 10
#define STREAM 1
#define LEVEL_SOCKET 1
#define SOCKET_ERROR 4

/* As in guest/init. */
#define AGENTS "sandkeep-agent"
#define HANDOVERS "sandkeep-handover"
/* The service waits no longer. */
#define LONGEST_NS 10000000000u

Attempt attempts[ATTEMPTS];

union address {
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
};

static u64 now(void) {
  struct __kernel_timespec time;
  call(__NR_clock_gettime, CLOCK_MONOTONIC, &time, 0, 0);
  return (u64)time.tv_sec * 1000000000u + (u64)time.tv_nsec;
}

static u16 network_order(u16 port) { return (u16)(port << 8 | port >> 8); }

void free_attempts(void) {
  for (int i = 0; i < ATTEMPTS; i++) attempts[i].fd = -1;
}

static void try_family(Attempt *a, u8 family);
static void hand_over(Attempt *a);

static void end(Attempt *a, long error) {
  if (a->fd >= 0) call(__NR_close, a->fd, 0, 0, 0);
  a->fd = -1;
  if (a->family == 4 && error == -ECONNREFUSED) return try_family(a, 6);
  /* A sandbox without IPv6 has another word for the second address. */
  answer_failed(a->id, a->family == 6 ? -ECONNREFUSED : error);
}

/* Where nothing listens, the kernel may choose the port for this end too, and the socket is connected to itself. */
static int is_own_end(Attempt *a) {
  union address own;
  int size = sizeof own;
  return call(__NR_getsockname, a->fd, &own, &size, 0) == 0 && own.v4.sin_port == network_order(a->port);
}

static void succeed(Attempt *a) {
  if (is_own_end(a)) return end(a, -ECONNREFUSED);
  hand_over(a);
}

static void hand_over(Attempt *a) {
  int fd = a->fd;
  a->fd = -1;
  answer_connected(a->id, fd);
}

/* The kernel answers at once. */
static void try_process(Attempt *a, const char *name) {
  struct sockaddr_un address;
  u64 n = length(name);
  memset(&address, 0, sizeof address);
  address.sun_family = FAMILY_UNIX;
  memcpy(address.sun_path + 1, name, n);
  a->fd = (int)call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC | O_NONBLOCK, 0, 0);
  if (a->fd < 0) return end(a, a->fd);
  long failed = call(__NR_connect, a->fd, &address, sizeof address.sun_family + 1 + n, 0);
  if (failed < 0) return end(a, failed);
  hand_over(a);
}

static void try_family(Attempt *a, u8 family) {
  a->family = family;
  a->fd = (int)call(__NR_socket, family == 6 ? FAMILY_V6 : FAMILY_V4, STREAM | O_CLOEXEC | O_NONBLOCK, 0, 0);
  if (a->fd < 0) return end(a, a->fd);
  int on = 1;
  call6(__NR_setsockopt, a->fd, IPPROTO_TCP, TCP_NODELAY, (long)&on, sizeof on, 0);
  union address to;
  memset(&to, 0, sizeof to);
  long size = family == 6 ? sizeof to.v6 : sizeof to.v4;
  to.v4.sin_port = network_order(a->port);
  if (family == 6) {
    to.v6.sin6_family = FAMILY_V6;
    to.v6.sin6_addr.s6_addr[15] = 1;
  } else {
    to.v4.sin_family = FAMILY_V4;
    const u8 loopback[] = {127, 0, 0, 1};
    memcpy(&to.v4.sin_addr, loopback, sizeof loopback);
  }
  long failed = call(__NR_connect, a->fd, &to, size, 0);
  if (failed == -EINPROGRESS) return;
  if (failed < 0) return end(a, failed);
  succeed(a);
}

void begin_attempt(u32 id, u16 port, u16 way) {
  Attempt *place = 0;
  int of_port = 0;
  for (int i = 0; i < ATTEMPTS; i++) {
    if (attempts[i].fd < 0) place = &attempts[i];
    else if (attempts[i].port == port) of_port++;
  }
  if (!place || of_port == ATTEMPTS_OF_PORT) return answer_failed(id, -EAGAIN);
  *place = (Attempt){-1, id, port, 0, now() + LONGEST_NS};
  if (port == 0) return try_process(place, way == 1 ? HANDOVERS : AGENTS);
  try_family(place, 4);
}

void finish_attempt(Attempt *a) {
  int error = 0, size = sizeof error;
  long failed = call6(__NR_getsockopt, a->fd, LEVEL_SOCKET, SOCKET_ERROR, (long)&error, (long)&size, 0);
  if (failed < 0 || error) return end(a, failed < 0 ? failed : -error);
  succeed(a);
}

void expire_attempts(void) {
  u64 time = now();
  for (int i = 0; i < ATTEMPTS; i++)
    if (attempts[i].fd >= 0 && time > attempts[i].deadline) end(&attempts[i], -ETIMEDOUT);
}
