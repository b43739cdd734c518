/* Frames of the agent: the writer of answers, and the reader of the fields of requests. */
#define HEADER 9
#ifndef SMALL_TABLES
#define FRAME_ROOM 262144
#endif

typedef struct {
  u8 *at;
  u8 *end;
  int bad; /* a field was missing */
} Reader;

static u8 outgoing[HEADER + FRAME_ROOM];

/* Ends the agent and its commands. */
__attribute__((noreturn)) static void shut_down(int code);

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

static void put32(u8 *to, u32 value) {
  for (int i = 0; i < 4; i++) to[i] = (u8)(value >> (8 * i));
}

static void put64(u8 *to, u64 value) {
  for (int i = 0; i < 8; i++) to[i] = (u8)(value >> (8 * i));
}

/* Sends the payload that was written behind the header of `outgoing`. */
static void send_outgoing(u32 id, u8 type, u32 n) {
  put32(outgoing, n);
  put32(outgoing + 4, id);
  outgoing[8] = type;
  write_all(1, outgoing, HEADER + n);
}

static void send_number(u32 id, u8 type, u32 value) {
  put32(outgoing + HEADER, value);
  send_outgoing(id, type, 4);
}

static void send_exit(u32 id, u32 code, u8 oom) {
  put32(outgoing + HEADER, code);
  outgoing[HEADER + 4] = oom;
  send_outgoing(id, EXITED, 5);
}

static void send_failure(u32 id, u8 step, long error) {
  outgoing[HEADER] = step;
  put32(outgoing + HEADER + 1, (u32)-error);
  send_outgoing(id, FAILED, 5);
}

static u64 take(Reader *from, int bytes) {
  u64 value = 0;
  if (from->end - from->at < bytes) {
    from->bad = 1;
    return 0;
  }
  for (int i = 0; i < bytes; i++) value |= (u64)*from->at++ << (8 * i);
  return value;
}

/* A text within the frame; it ends with NUL. */
static char *take_text(Reader *from) {
  char *text = (char *)from->at;
  while (from->at < from->end)
    if (*from->at++ == 0) return text;
  from->bad = 1;
  return "";
}
