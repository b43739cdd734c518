#include "listeners.h"
#include <linux/fcntl.h>
#include <linux/in.h>
#include <linux/poll.h>
#include <linux/un.h>

#define FAMILY_UNIX 1
#define FAMILY_V4 2
#define STREAM 1
#define DATAGRAM 2
/* The kernel uses its own bound (net.core.somaxconn) where that is lower. */
#define BACKLOG 4096
#define LEVEL_SOCKET 1
#define REUSE_ADDRESS 2
#define RIGHTS 1
#define NO_SIGNAL 0x4000

/* 169.254.7.53 */
#define GATEWAY_ADDRESS 0xa9fe0735u

typedef struct {
  int type;
  u32 address;
  u16 port;
} Listener;

static const Listener listeners[LISTENERS] = {
    {DATAGRAM, GATEWAY_ADDRESS, 53},    {STREAM, GATEWAY_ADDRESS, 53}, {DATAGRAM, GATEWAY_ADDRESS, 5300},
    {STREAM, GATEWAY_ADDRESS, 5300}, {STREAM, 0, 15001},
};

/* The structures of sendmsg and recvmsg, which the headers of the kernel do not export. */
typedef struct {
  void *start;
  u64 length;
} Part;

typedef struct {
  void *name;
  int name_length;
  Part *parts;
  u64 count;
  void *control;
  u64 control_length;
  u32 flags;
} Message;

typedef struct {
  u64 length;
  int level;
  int type;
  int descriptors[LISTENERS];
} Control;

/* Without the padding at the end of the structure. */
#define CONTROL_LENGTH (sizeof(u64) + 2 * sizeof(int) + LISTENERS * sizeof(int))

static u32 network_order(u32 n) { return n >> 24 | (n >> 8 & 0xff00) | (n << 8 & 0xff0000) | n << 24; }

static long set(long fd, int level, int option) {
  int on = 1;
  return call6(__NR_setsockopt, fd, level, option, (long)&on, sizeof on, 0);
}

static long open_one(const Listener *wanted) {
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = FAMILY_V4;
  address.sin_port = (u16)(wanted->port << 8 | wanted->port >> 8);
  address.sin_addr.s_addr = network_order(wanted->address);
  long fd = call(__NR_socket, FAMILY_V4, wanted->type | O_CLOEXEC | O_NONBLOCK, 0, 0);
  if (fd < 0) return fd;
  /* Connections of an earlier gateway linger on the port. With this option two UDP sockets could share it. */
  long failed = wanted->type == STREAM ? set(fd, LEVEL_SOCKET, REUSE_ADDRESS) : 0;
  /* Without an address of its own, it takes connections to every destination. */
  if (failed == 0 && wanted->address == 0) failed = set(fd, IPPROTO_IP, IP_TRANSPARENT);
  if (failed == 0) failed = call(__NR_bind, fd, &address, sizeof address, 0);
  if (failed == 0 && wanted->type == STREAM) failed = call(__NR_listen, fd, BACKLOG, 0, 0);
  return failed < 0 ? failed : fd;
}

/* An abstract name, which belongs to the network namespace alone. Returns its length. */
static long keeper_address(struct sockaddr_un *address) {
  static const char name[] = "\0sandkeep-listeners";
  memset(address, 0, sizeof *address);
  address->sun_family = FAMILY_UNIX;
  memcpy(address->sun_path, name, sizeof name - 1);
  return sizeof address->sun_family + sizeof name - 1;
}

static long keeper_socket(void) { return call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC, 0, 0); }

/* A message needs a byte beside the descriptors. */
static void prepare(Message *message, Part *part, Control *control) {
  static char byte;
  *part = (Part){&byte, 1};
  memset(message, 0, sizeof *message);
  message->parts = part;
  message->count = 1;
  message->control = control;
  message->control_length = sizeof *control;
}

long open_listeners(Kept *kept) {
  for (int i = 0; i < LISTENERS; i++) {
    kept->listeners[i] = (int)open_one(&listeners[i]);
    if (kept->listeners[i] < 0) return kept->listeners[i];
  }
  struct sockaddr_un address;
  long length = keeper_address(&address);
  long fd = keeper_socket();
  if (fd < 0) return fd;
  kept->socket = (int)fd;
  long failed = call(__NR_bind, fd, &address, length, 0);
  return failed < 0 ? failed : call(__NR_listen, fd, 1, 0, 0);
}

void hand_out(const Kept *kept) {
  for (;;) {
    struct pollfd events[] = {{kept->socket, POLLIN, 0}, {0, POLLIN, 0}};
    long ready = call6(__NR_ppoll, (long)events, 2, 0, 0, 0, 0);
    if (ready == -EINTR) continue;
    /* Nothing is ever written to the standard input, so it is ready when the service has closed its end. */
    if (ready < 0 || events[1].revents) return;
    long peer = call(__NR_accept4, kept->socket, 0, 0, O_CLOEXEC);
    if (peer < 0) continue;
    Control control;
    Message message;
    Part part;
    prepare(&message, &part, &control);
    control.length = message.control_length = CONTROL_LENGTH;
    control.level = LEVEL_SOCKET;
    control.type = RIGHTS;
    memcpy(control.descriptors, kept->listeners, sizeof control.descriptors);
    call(__NR_sendmsg, peer, &message, NO_SIGNAL, 0);
    call(__NR_close, peer, 0, 0, 0);
  }
}

long take_listeners(void) {
  struct sockaddr_un address;
  long length = keeper_address(&address);
  long fd = keeper_socket();
  if (fd < 0) return fd;
  long failed = call(__NR_connect, fd, &address, length, 0);
  if (failed < 0) return failed;
  Control control;
  Message message;
  Part part;
  prepare(&message, &part, &control);
  long got = call(__NR_recvmsg, fd, &message, 0, 0);
  if (got < 0) return got;
  if (got != 1 || message.control_length < CONTROL_LENGTH || control.type != RIGHTS) return -EPROTO;
  call(__NR_close, fd, 0, 0, 0);
  for (int i = 0; i < LISTENERS; i++) {
    /* The kernel gives the lowest free numbers in their order, so none of the later ones is replaced. */
    int wanted = FIRST_LISTENER + i;
    if (control.descriptors[i] == wanted) continue;
    long moved = call(__NR_dup3, control.descriptors[i], wanted, 0, 0);
    if (moved < 0) return moved;
    call(__NR_close, control.descriptors[i], 0, 0, 0);
  }
  return 0;
}
