#include "answers.h"

#define LEVEL_SOCKET 1
#define SCM_RIGHTS 1
#define NO_SIGNAL 0x4000 /* MSG_NOSIGNAL */
#define LINE_ROOM 128

/* No header of the kernel has these for programs. */
struct part {
  void *base;
  u64 size;
};
struct message {
  void *name;
  int name_size;
  struct part *parts;
  u64 part_count;
  void *control;
  u64 control_size;
  int flags;
};
struct control {
  u64 size;
  int level;
  int type;
  int fd;
  int padding;
};

static char line[LINE_ROOM];
static char *line_end;

static void begin(void) { line_end = line; }

static void add(const char *text) {
  while (*text) *line_end++ = *text++;
}

/* Waits while the service does not read. Returns 0, or the error of the first piece. */
static long send_line(int fd) {
  struct control control = {sizeof control - sizeof control.padding, LEVEL_SOCKET, SCM_RIGHTS, fd, 0};
  struct part part;
  struct message message;
  memset(&message, 0, sizeof message);
  message.parts = &part;
  message.part_count = 1;
  if (fd >= 0) {
    message.control = &control;
    message.control_size = sizeof control;
  }
  for (char *at = line; at < line_end;) {
    part = (struct part){at, (u64)(line_end - at)};
    long sent = call(__NR_sendmsg, CHANNEL, &message, NO_SIGNAL, 0);
    if (sent == -EINTR) continue;
    if (sent < 0 && at == line) return sent;
    /* The rest of a line cannot be left out. */
    if (sent < 0) leave(0);
    at += sent;
    message.control = 0;
    message.control_size = 0;
  }
  return 0;
}

void answer_ready(void) {
  begin();
  add("{\"ready\":true}\n");
  check("answer the service", send_line(-1));
}

void answer_connected(u32 id, int fd) {
  begin();
  add("{\"cmd\":\"NODE_HANDLE\",\"type\":\"net.Socket\",\"msg\":{\"id\":");
  line_end = put_number(line_end, id);
  add("}}\n");
  long failed = send_line(fd);
  call(__NR_close, fd, 0, 0, 0);
  /* The kernel bounds the descriptors that are under way. */
  if (failed < 0) answer_failed(id, failed);
}

void answer_failed(u32 id, long error) {
  begin();
  add("{\"id\":");
  line_end = put_number(line_end, id);
  add(",\"errno\":");
  line_end = put_number(line_end, (u64)-error);
  add("}\n");
  /* The service has gone. */
  if (send_line(-1) < 0) leave(0);
}
