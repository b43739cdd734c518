#include "streams.h"
#include "../common/oom.h"
#include "commands.h"
#include "connections.h"
#include "frames.h"

/* Fewer acknowledgements make larger, cheaper frames. The window has room for eight. */
#define ACKNOWLEDGE 65536

static void end_input(Channel *c) {
  c->ending = 0;
  if (c->state == OPEN) return end_sending(c);
  if (!c->tty) return close_fd(&c->in);
  /* The end of the input of a terminal is a character. */
  u8 end = 4;
  if (c->in >= 0) call(__NR_write, c->in, &end, 1, 0);
}

void push_input(Channel *c) {
  while (c->count > 0 && c->in >= 0) {
    u32 n = c->count;
    if (n > STDIN_ROOM - c->first) n = STDIN_ROOM - c->first;
    long done = call(__NR_write, c->in, c->input + c->first, n, 0);
    if (done == -EAGAIN || done == -EINTR) return;
    if (done < 0 && c->state == OPEN) return fail_connection(c, done);
    if (done < 0) {
      send_number(c->id, ANSWER_INPUT_FAILED, (u32)-done);
      send_number(c->id, ANSWER_CONSUMED, c->consumed + c->count);
      c->consumed = c->count = 0;
      if (!c->tty) close_fd(&c->in);
      return;
    }
    c->first = (c->first + (u32)done) % STDIN_ROOM;
    c->count -= (u32)done;
    c->consumed += (u32)done;
    if (c->consumed < ACKNOWLEDGE && c->count > 0) continue;
    send_number(c->id, ANSWER_CONSUMED, c->consumed);
    c->consumed = 0;
  }
  if (c->count == 0 && c->ending) end_input(c);
}

void handle_stdin(Channel *c, Reader *from) {
  u32 n = (u32)(from->end - from->at);
  if (n == 0) {
    c->ending = 1;
  } else if ((c->in < 0 && c->state != CONNECTING) || c->shut) {
    /* Input after the end is dropped. */
    return send_number(c->id, ANSWER_CONSUMED, n);
  } else {
    if (n > STDIN_ROOM - c->count) n = STDIN_ROOM - c->count;
    u32 at = (c->first + c->count) % STDIN_ROOM, part = n < STDIN_ROOM - at ? n : STDIN_ROOM - at;
    memcpy(c->input + at, from->at, part);
    memcpy(c->input, from->at + part, n - part);
    c->count += n;
  }
  if (c->state == RUNNING || c->state == OPEN) push_input(c);
}

void end_stream(Channel *c, int *fd) {
  if (c->state == OPEN) return end_receiving(c);
  if (*fd == c->in) c->in = -1;
  close_fd(fd);
  finish_if_over(c);
}

void pull(Channel *c, int *fd, u8 type) {
  long room = c->credit < CHUNK ? c->credit : CHUNK;
  long got = call(__NR_read, *fd, PAYLOAD, room, 0);
  if (got == -EAGAIN || got == -EINTR) return;
  if (got < 0 && c->state == OPEN) return fail_connection(c, got);
  /* A terminal whose last process has ended answers with EIO. */
  if (got <= 0) return end_stream(c, fd);
  c->credit -= got < LIMIT_FRAME_COST ? LIMIT_FRAME_COST : got;
  if (lingers(c)) c->lingered += (u64)got;
  send_outgoing(c->id, type, (u32)got);
}

void close_channel(Channel *c) {
  kill_group(c, SIGKILL);
  enum State was = c->state;
  forget(c);
  if (was == WORKING) answer(c->id, -ECANCELED, 0);
  else if (was == STARTING || was == RUNNING) send_exit(c->id, 128 + SIGKILL, oom_killed(128 + SIGKILL, c->kills_before));
  else send_outgoing(c->id, ANSWER_CLOSED, 0);
}
