/*
 * The agent under libFuzzer: its loop, with a kernel of this file. The input is what the control plane could send,
 * after a seed for the answers of the kernel, because the sandbox chooses those: short reads, errors, names, and which
 * descriptors are ready.
 *
 *   guest/fuzz/run.sh SECONDS [CORPUS]
 *
 * Nothing leaves the process: no call reaches the real kernel. Forks always return to the agent.
 */
#include "../agent/channels.h"
#include "../agent/file-trees.h"
#include "../agent/handles.h"
#include "../agent/requests.h"
#include "../common/users.h"
#include <asm/ioctls.h>
#include <asm/poll.h>
#include <linux/stat.h>
#include <linux/time_types.h>
#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

/* <stdlib.h> has types that contradict those of the kernel. */
void *malloc(size_t bytes);
void free(void *memory);

void start(long *stack);
/* The agent names it, and no signal of this kernel arrives. */
void restore_signal(void) {}

static jmp_buf ended;
static const uint8_t *input;
static size_t left;
static uint64_t random_state;
/* No number comes twice, so that a use after the end of a descriptor is one of a number that is not open. */
#define DESCRIPTORS 2048
static int next_fd;
static uint8_t is_open[DESCRIPTORS];
static int next_pid;
static long rounds;

/* SplitMix64. */
static uint64_t draw(void) {
  uint64_t z = (random_state += 0x9e3779b97f4a7c15UL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9UL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebUL;
  return z ^ (z >> 31);
}

static uint64_t below(uint64_t limit) { return limit == 0 ? 0 : draw() % limit; }

void leave(int code) {
  (void)code;
  longjmp(ended, 1);
}

static void require(int holds) {
  if (!holds) __builtin_trap();
}

static int open_fd(void) {
  is_open[next_fd] = 1;
  return next_fd++;
}

static void require_open(long fd) { require(fd >= 0 && fd < DESCRIPTORS && is_open[fd]); }

static long fill(uint8_t *to, uint64_t room) {
  /* Seldom a whole buffer: the sanitizers make each byte slow. */
  if (room > 2048 && below(64) != 0) room = 2048;
  uint64_t n = below(room + 1);
  if (below(4) == 0) n = room;
  for (uint64_t i = 0; i < n; i++) to[i] = (uint8_t)(i % 7 == 0 ? '\n' : i % 5 == 0 ? ':' : '0' + i % 10);
  return (long)n;
}

/* The limits that the agent promises to keep. */
static void check_tables(void) {
  for (int i = 0; i < CHANNELS; i++) {
    const Channel *c = &channels[i];
    if (c->state == FREE) continue;
    require(c->count <= STDIN_ROOM && c->first < STDIN_ROOM && c->input);
    for (int other = 0; other < i; other++) require(channels[other].state == FREE || channels[other].id != c->id);
  }
  for (int i = 0; i < HANDLES; i++) {
    int owned = 0;
    if (handles[i].fd < 0) continue;
    require_open(handles[i].fd);
    for (int other = 0; other < HANDLES; other++) owned += handles[other].fd >= 0 && handles[other].owner == handles[i].owner;
    require(owned <= OWNER_HANDLES);
  }
}

/*
 * The frames of an input: most inputs have a type, a channel, a length and a payload for each, which are put in frames
 * here, so that the fuzzer finds the requests at once. A frame may be long, may lie about its length, and may be
 * repeated, with an owner of its own each time: tables and buffers fill up. The other inputs are the bytes of the
 * stream, with lengths that may be wrong.
 */
static uint8_t stream[1 << 20];

/* Most owners, handles and counts are small, and most requests are valid, so that requests meet the tables that
   earlier ones have filled. */
static void shape(uint8_t type, uint8_t *payload, size_t n, int time) {
  if (type == REQUEST_FILES && n >= 5) {
    payload[0] = payload[0] & 0x80 ? FILE_OPEN_DIR + payload[0] % 4 : payload[0] % 24;
    payload[1] = (uint8_t)((payload[1] + time / 32) % 4);
    payload[2] = payload[3] = payload[4] = 0;
    if (payload[n - 1] < 192) payload[n - 1] = 0;
    if (payload[0] < FILE_CLOSE || n < 9) return;
    /* Handles are given from the end of the table. */
    payload[5] = (uint8_t)(HANDLES + 1 - payload[5] % (payload[5] & 0x80 ? HANDLES + 2 : 4));
    payload[6] = payload[7] = payload[8] = 0;
  } else if (type == REQUEST_EXEC && n >= 14) {
    payload[9] %= TEXTS_MAX;
    payload[11] %= 4;
    payload[10] = payload[12] = 0;
    payload[13] &= 3;
  } else if (type == REQUEST_CONNECT && n >= 5) {
    payload[4] = payload[4] % 8 == 0 ? payload[4] : (uint8_t)(4 + payload[4] % 2 * 2);
  }
}

static size_t frames_of(const uint8_t *from, size_t n) {
  size_t used = 0;
  while (n >= 4) {
    /* Mostly short, so that an input has many frames. */
    size_t payload = from[3] & 0x40 ? (size_t)from[2] | (size_t)(from[3] & 0x0f) << 8 : from[2] & 0x3f;
    if (payload > n - 4) payload = n - 4;
    size_t padded = from[3] & 0x80 && payload < STDIN_ROOM ? STDIN_ROOM : payload;
    int times = 1 << (from[1] >> 4 & 7);
    for (int time = 0; time < times && used + HEADER_BYTES + padded <= sizeof stream; time++) {
      static const u32 lengths[] = {FRAME_ROOM, FRAME_ROOM + 1, 0x7fffffff, 0x80000000, 0xfffffff6, 0xfffffff7, 0xffffffff};
      int lies = from[1] == 0xff;
      put(stream + used, lies ? lengths[payload % (sizeof lengths / sizeof *lengths)] : (u32)padded, 4);
      put(stream + used + 4, from[1] & 0x87, 4);
      static const uint8_t types[] = {
          REQUEST_EXEC, REQUEST_INPUT, REQUEST_RESIZE, REQUEST_SIGNAL, REQUEST_CREDIT, REQUEST_CLOSE, REQUEST_END_OWNER, REQUEST_CONNECT,
          REQUEST_PING, REQUEST_INPUT, REQUEST_FILES, REQUEST_FILES, REQUEST_FILES, REQUEST_FILES, REQUEST_FILES};
      stream[used + 8] = from[0] >= 240 ? from[0] : types[from[0] % sizeof types];
      for (size_t i = 0; i < padded; i++) stream[used + HEADER_BYTES + i] = i < payload ? from[4 + i] : 0;
      shape(stream[used + 8], stream + used + HEADER_BYTES, padded, time);
      used += HEADER_BYTES + padded;
    }
    from += 4 + payload;
    n -= 4 + payload;
  }
  return used;
}

static long next_input(uint8_t *to, uint64_t room) {
  if (left == 0 || room == 0) return 0;
  uint64_t n = below(2) ? room : 1 + below(room < left ? room : left);
  if (n > left) n = left;
  if (n > room) n = room;
  /* A read behind the bytes that have arrived is a fault, although the buffer goes on. */
  __asan_unpoison_memory_region(to, room);
  for (uint64_t i = 0; i < n; i++) to[i] = input[i];
  __asan_poison_memory_region(to + n, room - n);
  input += n;
  left -= n;
  return (long)n;
}

/* Entries as the kernel makes them: of any name up to 255 bytes, and whole. */
static long directory(uint8_t *to, uint64_t room) {
  uint64_t at = 0;
  if (below(3) == 0) return 0;
  while (below(8) != 0) {
    uint64_t n = 1 + below(255), size = (offsetof(Directory_Entry, name) + n + 1 + 7) & ~7UL;
    if (at + size > room) break;
    Directory_Entry *entry = (Directory_Entry *)(to + at);
    entry->inode = draw();
    entry->offset = (u64)at;
    entry->size = (u16)size;
    entry->kind = (u8)below(16);
    for (uint64_t i = 0; i < n; i++) entry->name[i] = (char)(1 + below(255));
    entry->name[n] = 0;
    at += size;
  }
  return (long)at;
}

static int is_frame(const uint8_t *at, uint64_t n) {
  static uint64_t missing;
  if (missing == 0) {
    require(n >= HEADER_BYTES);
    uint64_t length = at[0] | at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
    require(length <= FRAME_ROOM);
    missing = HEADER_BYTES + length;
  }
  require(n <= missing);
  missing -= n;
  return 1;
}

long call6(long number, long a, long b, long c, long d, long e, long f) {
  (void)d, (void)e, (void)f;
  static const long errors[] = {-EINTR, -EAGAIN, -ENOENT, -EMFILE, -EIO, -ENOMEM, -ESPIPE, -EISDIR};
  int fails = below(8) == 0;
  if (number == __NR_read || number == __NR_write || number == __NR_pread64 || number == __NR_pwrite64 || number == __NR_close ||
      number == __NR_getdents64 || number == __NR_connect || number == __NR_shutdown || number == __NR_getsockopt || number == __NR_ftruncate)
    require_open(a);
  long error = errors[below(sizeof errors / sizeof *errors)];
  switch (number) {
    case __NR_read:
      if (a == 0) return next_input((uint8_t *)b, (uint64_t)c);
      if (fails) return error;
      return fill((uint8_t *)b, (uint64_t)c);
    case __NR_pread64: return fails ? error : fill((uint8_t *)b, (uint64_t)c);
    case __NR_readlinkat: return fails ? error : fill((uint8_t *)c, (uint64_t)d);
    case __NR_write:
      for (long i = 0; i < c; i++) (void)((volatile uint8_t *)b)[i];
      if (a == 1) {
        is_frame((const uint8_t *)b, (uint64_t)c);
        return c;
      }
      return fails ? error : (long)(c == 0 ? 0 : 1 + below((uint64_t)c));
    case __NR_pwrite64: return fails ? -EIO : (long)(c == 0 ? 0 : 1 + below((uint64_t)c));
    case __NR_getdents64: return fails ? error : directory((uint8_t *)b, (uint64_t)c);
    case __NR_statx: {
      if (fails) return error;
      struct statx *s = (struct statx *)e;
      memset(s, 0, sizeof *s);
      s->stx_mode = (u16)draw();
      s->stx_size = draw();
      return 0;
    }
    case __NR_openat:
    case __NR_socket:
      /* A path is a text within the input. */
      if (number == __NR_openat) (void)length((const char *)b);
      return fails || next_fd > DESCRIPTORS - 4 ? -EMFILE : open_fd();
    case __NR_close:
      require(a > 2);
      is_open[a] = 0;
      return 0;
    case __NR_ioctl:
      require_open(a);
      if (b == TIOCGPTPEER) return fails || next_fd > DESCRIPTORS - 4 ? -EMFILE : open_fd();
      return fails ? error : 0;
    case __NR_pipe2:
      if (fails || next_fd > DESCRIPTORS - 4) return -EMFILE;
      ((int *)a)[0] = open_fd();
      ((int *)a)[1] = open_fd();
      return 0;
    /* The memory of an input, whose bounds the sanitizer knows. */
    case __NR_mmap: return fails ? -ENOMEM : (long)malloc((uint64_t)b);
    case __NR_munmap: free((void *)a); return 0;
    case __NR_clone: return fails ? -EAGAIN : next_pid++;
    case __NR_wait4:
      if (below(3) != 0) return -ECHILD;
      *(int *)b = (int)(draw() & 0xff7f);
      return 100 + (long)below(64);
    case __NR_getsockopt:
      *(int *)d = fails ? ECONNREFUSED : 0;
      return 0;
    case __NR_connect: return below(2) ? -EINPROGRESS : fails ? -ECONNREFUSED : 0;
    case __NR_ppoll: {
      struct pollfd *polled = (struct pollfd *)a;
      /* The input ends in time, whatever the agent waits for. */
      if (++rounds > 2000) left = 0;
      check_tables();
      for (long i = 0; i < b; i++) polled[i].revents = below(2) ? (short)(polled[i].events | (below(4) ? 0 : POLLHUP)) : 0;
      if (b > 0) polled[0].revents = POLLIN;
      return b;
    }
    case __NR_clock_gettime:
      ((struct __kernel_timespec *)b)->tv_sec = rounds;
      return 0;
    default: return fails ? error : 0;
  }
}

/* The files of users, which the sandbox writes: read by the children of the agent. */
static void read_users(void) {
  static User user;
  static const char *names[] = {"root", "0", "1000:1000", "user:group", "a:b:c", "4294967295", ""};
  find_user(names[below(sizeof names / sizeof *names)], &user);
  require(user.group_count <= USER_GROUPS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 9) return 0;
  random_state = 0;
  for (int i = 0; i < 8; i++) random_state = random_state << 8 | data[i];
  int is_raw = data[8] % 8 == 0;
  left = is_raw ? size - 9 : frames_of(data + 9, size - 9);
  input = is_raw ? data + 9 : stream;
  memset(is_open, 0, sizeof is_open);
  is_open[0] = is_open[1] = is_open[2] = 1;
  next_fd = 10;
  next_pid = 100;
  rounds = 0;
  incoming.has = 0;
  __asan_unpoison_memory_region(&incoming, sizeof incoming);
  for (int i = 0; i < CHANNELS; i++) {
    free(channels[i].input);
    channels[i] = (Channel){0};
  }
  static const char *name = "agent";
  long stack[] = {1, (long)name, 0, 0};
  if (setjmp(ended) == 0) start(stack);
  check_tables();
  if (below(16) == 0 && setjmp(ended) == 0) read_users();
  return 0;
}
