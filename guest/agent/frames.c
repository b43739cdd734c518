#include "frames.h"
#include "channels.h"
#include <asm/poll.h>

u8 outgoing[HEADER_BYTES + FRAME_ROOM];

/* The engine made the pipe, and may have set it not to block: the agent waits by itself. */
static void write_all(int fd, const u8 *from, u64 n) {
  while (n > 0) {
    long done = call(__NR_write, fd, from, n, 0);
    if (done == -EINTR) continue;
    if (done == -EAGAIN) {
      struct pollfd room = {fd, POLLOUT, 0};
      call6(__NR_ppoll, (long)&room, 1, 0, 0, 0, 0);
      continue;
    }
    if (done < 0) shut_down(1);
    from += done;
    n -= (u64)done;
  }
}

void send_outgoing(u32 id, u8 type, u32 n) {
  put_header(outgoing, (struct header_layout){n, id, type});
  write_all(1, outgoing, HEADER_BYTES + n);
}

void send_number(u32 id, u8 type, u32 value) {
  put(PAYLOAD, value, 4);
  send_outgoing(id, type, 4);
}

void send_exit(u32 id, u32 code, u8 oom) {
  put_exited(PAYLOAD, (struct exited_layout){code, oom});
  send_outgoing(id, ANSWER_EXITED, EXITED_BYTES);
}

void send_failure(u32 id, u8 step, long error) {
  put_failed(PAYLOAD, (struct failed_layout){step, (u32)-error});
  send_outgoing(id, ANSWER_FAILED, FAILED_BYTES);
}

void answer(u32 id, long error, u32 n) {
  put_done(PAYLOAD, (struct done_layout){error < 0 ? (u32)-error : 0});
  send_outgoing(id, ANSWER_DONE, DONE_BYTES + (error < 0 ? 0 : n));
}
