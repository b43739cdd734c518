#include "requests.h"
#include "commands.h"
#include "connections.h"
#include "file-requests.h"
#include "frames.h"
#include "streams.h"
#include <asm/ioctls.h>

struct incoming incoming;

static void handle(u32 id, u8 type, u8 *payload, u32 n) {
  Reader from = {payload, payload + n, 0};
  switch (type) {
    case REQUEST_EXEC: return handle_exec(id, &from);
    case REQUEST_FILES: return handle_files(id, &from);
    case REQUEST_CONNECT: return handle_connect(id, &from);
    case REQUEST_END_OWNER: return end_owner(id);
    case REQUEST_PING: return send_outgoing(id, ANSWER_PONG, 0);
  }
  /* The service may not know yet that the channel has ended. */
  Channel *c = find(id);
  if (!c) return;
  switch (type) {
    case REQUEST_INPUT: return handle_stdin(c, &from);
    case REQUEST_CREDIT: c->credit += (long)take_credit(&from).bytes; return;
    case REQUEST_CLOSE: return close_channel(c);
    case REQUEST_SIGNAL: {
      u8 signal = take_signal(&from).number;
      if (!from.bad && signal >= 1 && signal <= 64) kill_group(c, signal);
      return;
    }
    case REQUEST_RESIZE: {
      struct resize_layout to = take_resize(&from);
      u16 size[4] = {to.rows, to.cols, 0, 0};
      if (!from.bad && c->tty && c->in >= 0) call(__NR_ioctl, c->in, TIOCSWINSZ, size, 0);
      return;
    }
  }
}

int read_frames(void) {
  u8 *bytes = incoming.bytes;
  u32 has = incoming.has;
  long got = call(__NR_read, 0, bytes + has, sizeof incoming.bytes - has, 0);
  if (got == -EINTR || got == -EAGAIN) return 1;
  if (got <= 0) return 0;
  has += (u32)got;
  u32 at = 0;
  while (has - at >= HEADER_BYTES) {
    Reader from = {bytes + at, bytes + at + HEADER_BYTES, 0};
    struct header_layout head = take_header(&from);
    if (head.length > FRAME_ROOM) return 0;
    if (has - at < HEADER_BYTES + head.length) break;
    handle(head.channel, head.type, bytes + at + HEADER_BYTES, head.length);
    at += HEADER_BYTES + head.length;
  }
  if (at > 0) move_down(bytes, bytes + at, has - at);
  incoming.has = has - at;
  return 1;
}
