#include "sessions.h"
#include "../protocol.h"
#include "times.h"
#include <linux/eventpoll.h>
#include <linux/fcntl.h>
#include <linux/un.h>

/* As in guest/init. */
#define NAME "sandkeep-agent"
#define FAMILY_UNIX 1
#define STREAM 1
#define NONBLOCK 04000
/* Process 1 listens when the mounts are made, which takes long on a busy machine. */
#define LISTEN_LIMIT (30 * SECOND)
#define MAGIC_BYTES (sizeof HANDSHAKE_HELLO - 1)
#define ANSWER_BYTES (MAGIC_BYTES + LIMIT_SESSION_KEY)
#define HELLO_BYTES (ANSWER_BYTES + LIMIT_SESSION_KEY)
#define FRAME_ROOM (HEADER_BYTES + LIMIT_PAYLOAD + LIMIT_SESSION_MARK)
/* The driver takes no more at once. */
#define PIECE (32 * 1024)

_Static_assert(MAGIC_BYTES == LIMIT_SESSION_KEY, "the copy of the key has the length of the text");

enum state { CLOSED, WAITING, OPEN };

/* Without initial values, which would be 512 KiB of the program. */
static struct {
  enum state state;
  int port;
  int events;
  int agent; /* a socket, while OPEN */
  int is_over;
  /* The kernel has told that the client of this session is there. Its bytes may come before that. */
  int is_connected;
  long waiting_since;
  u8 key[LIMIT_SESSION_KEY];
  /* Of the client, from `first` to `end`. The agent has `sent` bytes of the first frame. One frame that the agent does
     not take leaves room for the hello of the next client. */
  u8 in[2 * FRAME_ROOM];
  u32 first, end, sent;
  /* For the client. */
  u8 out[PIECE + ANSWER_BYTES];
  u32 out_first, out_end;
} session;

static void end_session(void) {
  if (session.state == OPEN) call(__NR_close, session.agent, 0, 0, 0);
  session.state = CLOSED;
  session.sent = 0;
}

static void add_answer(const char *magic) {
  memcpy(session.out + session.out_end, magic, MAGIC_BYTES);
  memcpy(session.out + session.out_end + MAGIC_BYTES, session.key, LIMIT_SESSION_KEY);
  session.out_end += ANSWER_BYTES;
}

static void compact(void) {
  move_down(session.in, session.in + session.first, session.end - session.first);
  session.end -= session.first;
  session.first = 0;
}

/* Files that a client sends may have the text, but not by chance with a key and its copy. */
static int is_hello(const u8 *bytes) {
  static const char magic[] = HANDSHAKE_HELLO;
  const u8 *key = bytes + MAGIC_BYTES, *copy = key + LIMIT_SESSION_KEY;
  for (u64 i = 0; i < MAGIC_BYTES; i++)
    if (bytes[i] != (u8)magic[i] || copy[i] != (key[i] ^ (u8)magic[i])) return 0;
  return 1;
}

/* Begins a session when the last bytes are a hello. Without a session other bytes are dropped. */
static void find_hello(void) {
  const u32 has = session.end - session.first;
  const u8 *hello = session.in + session.end - HELLO_BYTES;
  if (has >= HELLO_BYTES && is_hello(hello)) {
    end_session();
    memcpy(session.key, hello + MAGIC_BYTES, LIMIT_SESSION_KEY);
    session.first = session.end = 0;
    /* The rest of an earlier agent. */
    session.out_first = session.out_end = 0;
    session.is_connected = 0;
    session.waiting_since = now();
    session.state = WAITING;
  } else if (session.state != OPEN && has >= HELLO_BYTES) {
    session.first = session.end - (HELLO_BYTES - 1);
    compact();
  }
}

static int read_port(void) {
  int moved = 0;
  if (session.first > 0 && session.end == sizeof session.in) compact();
  while (session.end < sizeof session.in) {
    long got = call(__NR_read, session.port, session.in + session.end, sizeof session.in - session.end, 0);
    if (got == -EAGAIN) session.is_connected = 1;
    if (got == 0 && session.is_connected) {
      /* The client is gone, and the next one has not come yet. */
      session.is_connected = 0;
      end_session();
      session.out_first = session.out_end = 0;
    }
    if (got <= 0) break;
    session.end += (u32)got;
    moved = 1;
  }
  if (moved) find_hello();
  return moved;
}

static int start_agent(void) {
  if (session.state != WAITING) return 0;
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = FAMILY_UNIX;
  memcpy(address.sun_path + 1, NAME, sizeof NAME - 1);
  long agent = call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC | NONBLOCK, 0, 0);
  long failed = agent < 0 ? agent : call(__NR_connect, agent, &address, sizeof address.sun_family + sizeof NAME, 0);
  if (failed >= 0) {
    struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, 0};
    call(__NR_epoll_ctl, session.events, EPOLL_CTL_ADD, agent, &event);
    session.agent = (int)agent;
    session.state = OPEN;
    add_answer(HANDSHAKE_WELCOME);
    return 1;
  }
  if (agent >= 0) call(__NR_close, agent, 0, 0, 0);
  if (!session.is_over && now() - session.waiting_since < LISTEN_LIMIT) return 0;
  session.state = CLOSED;
  add_answer(HANDSHAKE_REFUSAL);
  return 1;
}

/* Returns 0 when the first frame is incomplete, or the agent does not take it. */
static int send_frame(void) {
  u8 *frame = session.in + session.first;
  const u32 has = session.end - session.first;
  if (session.state != OPEN || has < HEADER_BYTES) return 0;
  Reader from = {frame, frame + HEADER_BYTES, 0};
  const u32 payload = take_header(&from).length, bytes = HEADER_BYTES + payload;
  int broken = payload > LIMIT_PAYLOAD;
  if (!broken && has < bytes + LIMIT_SESSION_MARK) return 0;
  if (broken || !same((const char *)frame + bytes, (const char *)session.key, LIMIT_SESSION_MARK)) {
    /* The client has changed in the middle of a frame. */
    end_session();
    session.out_first = session.out_end = 0;
    find_hello();
    return 1;
  }
  long done = call(__NR_write, session.agent, frame + session.sent, bytes - session.sent, 0);
  if (done == -EAGAIN || done == -EINTR) return 0;
  if (done < 0) {
    /* It has ended. read_agent finds its last bytes, and the end. */
    done = bytes - session.sent;
  }
  session.sent += (u32)done;
  if (session.sent == bytes) {
    session.sent = 0;
    session.first += bytes + LIMIT_SESSION_MARK;
    if (session.first == session.end) session.first = session.end = 0;
  }
  return 1;
}

static int read_agent(void) {
  if (session.state != OPEN || session.out_first < session.out_end) return 0;
  long got = call(__NR_read, session.agent, session.out, PIECE, 0);
  if (got == -EAGAIN || got == -EINTR) return 0;
  session.out_first = session.out_end = 0;
  if (got > 0) {
    session.out_end = (u32)got;
  } else {
    end_session();
    add_answer(HANDSHAKE_REFUSAL);
  }
  return 1;
}

static int write_port(void) {
  if (session.out_first == session.out_end) return 0;
  long done = call(__NR_write, session.port, session.out + session.out_first, session.out_end - session.out_first, 0);
  if (done <= 0) return 0;
  session.out_first += (u32)done;
  return 1;
}

void open_sessions(int port, int events) {
  struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, 0};
  session.port = port;
  session.events = events;
  call(__NR_epoll_ctl, events, EPOLL_CTL_ADD, port, &event);
}

int pump_sessions(void) {
  int moved = read_port() | start_agent();
  while (send_frame()) moved = 1;
  return moved | read_agent() | write_port();
}

int is_session_waiting(void) { return session.state == WAITING; }

void refuse_sessions(void) { session.is_over = 1; }
