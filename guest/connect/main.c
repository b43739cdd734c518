/*
 * Opens connections to the loopback addresses of one sandbox, for the service.
 *
 *   connect NAMESPACE PROCESS USER
 *
 * NAMESPACE is an inherited descriptor of the network namespace of the sandbox. PROCESS is the number of its process 1,
 * and USER the number of a user. The program enters the namespace, and gives up every right. It then reads requests
 * from its input, and passes the connections to the service on descriptor 3 (answers.h). It reads and writes none of
 * their bytes.
 *
 * It ends with the process, with the service, and with its input. A request has eight bytes, little-endian: an id of
 * four, a port of two, and a way of two. Port 0 is process 1 of the sandbox: by the way 0 it starts an agent
 * (../init/agents.h), and by the way 1 it takes its command (../init/handover.h).
 */
#include "../common/rights.h"
#include "attempts.h"
#include <asm/poll.h>
#include <linux/fcntl.h>
#include <linux/sched.h>
#include <linux/time_types.h>

#define INPUT 0
#define REQUEST_BYTES 8
#define REQUESTS_ROOM (64 * REQUEST_BYTES)
#define TICK_SECONDS 1

enum { REQUESTS, ACKNOWLEDGEMENTS, SANDBOX, FIRST_ATTEMPT };

static struct pollfd polled[FIRST_ATTEMPT + ATTEMPTS];
static Attempt *owners[FIRST_ATTEMPT + ATTEMPTS];

static void read_requests(void) {
  static u8 bytes[REQUESTS_ROOM];
  static long held;
  long got = call(__NR_read, INPUT, bytes + held, REQUESTS_ROOM - held, 0);
  if (got == -EINTR || got == -EAGAIN) return;
  if (got <= 0) leave(0);
  held += got;
  u8 *at = bytes;
  for (; bytes + held - at >= REQUEST_BYTES; at += REQUEST_BYTES) {
    u32 id = (u32)at[0] | (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24;
    begin_attempt(id, (u16)(at[4] | at[5] << 8), (u16)(at[6] | at[7] << 8));
  }
  held = bytes + held - at;
  move_down(bytes, at, (u64)held);
}

/* Node acknowledges each descriptor. */
static void drop_acknowledgements(void) {
  char dropped[1024];
  long got = call(__NR_read, CHANNEL, dropped, sizeof dropped, 0);
  if (got == 0 || (got < 0 && got != -EINTR && got != -EAGAIN)) leave(0);
}

static void serve_round(void) {
  int count = FIRST_ATTEMPT;
  for (int i = 0; i < ATTEMPTS; i++) {
    if (attempts[i].fd < 0) continue;
    owners[count] = &attempts[i];
    polled[count++] = (struct pollfd){attempts[i].fd, POLLOUT, 0};
  }
  const struct __kernel_timespec tick = {TICK_SECONDS, 0};
  struct __kernel_timespec left = tick;
  long ready = call6(__NR_ppoll, (long)polled, count, count > FIRST_ATTEMPT ? (long)&left : 0, 0, 8, 0);
  if (ready < 0 && ready != -EINTR && ready != -ENOMEM) leave(1);
  if (ready < 0) return;
  if (polled[SANDBOX].revents) leave(0);
  for (int i = FIRST_ATTEMPT; i < count; i++)
    if (polled[i].revents) finish_attempt(owners[i]);
  if (count > FIRST_ATTEMPT) expire_attempts();
  if (polled[ACKNOWLEDGEMENTS].revents) drop_acknowledgements();
  /* Last: a request takes the place of an attempt that was polled. */
  if (polled[REQUESTS].revents) read_requests();
}

__attribute__((used, noreturn)) void start(long *stack) {
  program_name = "connect";
  char **argv = (char **)(stack + 1);
  if (stack[0] != 4) fail("read the arguments", -EINVAL);
  long namespace = parse(argv[1]);
  long process = parse(argv[2]);
  long user = parse(argv[3]);

  /* The service may have inherited some from its own parent. Older kernels lack the call. */
  call(__NR_close_range, namespace + 1, ~0u, 0, 0);
  check("enter the network namespace", call(__NR_setns, namespace, CLONE_NEWNET, 0, 0));
  call(__NR_close, namespace, 0, 0, 0);
  long sandbox = call(__NR_pidfd_open, process, 0, 0, 0);
  check("watch the sandbox", sandbox);
  drop_rights(user, 0);
  free_attempts();
  polled[REQUESTS] = (struct pollfd){INPUT, POLLIN, 0};
  polled[ACKNOWLEDGEMENTS] = (struct pollfd){CHANNEL, POLLIN, 0};
  polled[SANDBOX] = (struct pollfd){(int)sandbox, POLLIN, 0};
  answer_ready();
  for (;;) serve_round();
}
