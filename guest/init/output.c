#include "output.h"
#include <linux/fcntl.h>
#include <asm/ioctls.h>
#include <asm/poll.h>
#include <linux/time_types.h>

#define CLOCK_MONOTONIC 1
#define PR_SET_DUMPABLE 4
/* LONGEST_PART with the rest of a character, CUT and a line break fits into the 16 KiB of an engine. */
#define CUT LIMIT_CUT
#define LONGEST_PART (16 * 1024 - 8)
#define CHARACTER_REST 3
/* The engine's record of a line is about this much longer than the line. */
#define LINE_TOKENS 128
/* How long the last output may wait for the engine. */
#define DRAIN_LIMIT (5 * SECOND)
#define LONGEST_REFILL (100 * SECOND)

struct relay relays[STREAMS];
static struct {
  long rate; /* tokens for a second */
  long burst;
  long tokens;
  long refilled;
} bucket;

long now(void) {
  struct __kernel_timespec time;
  call(__NR_clock_gettime, CLOCK_MONOTONIC, &time, 0, 0);
  return time.tv_sec * SECOND + time.tv_nsec;
}

static void refill(void) {
  long time = now();
  long passed = time - bucket.refilled;
  if (passed > LONGEST_REFILL) passed = LONGEST_REFILL;
  bucket.refilled = time;
  bucket.tokens += passed / 1000 * bucket.rate / 1000000;
  if (bucket.tokens > bucket.burst) bucket.tokens = bucket.burst;
}

long open_relays(int ends[STREAMS], long rate, long burst) {
  bucket.rate = rate;
  bucket.burst = bucket.tokens = burst;
  bucket.refilled = now();
  call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
  for (int i = 0; i < STREAMS; i++) {
    int pipe[2];
    long failed = call(__NR_pipe2, pipe, O_CLOEXEC, 0, 0);
    if (failed < 0) return failed;
    call(__NR_fcntl, pipe[0], F_SETFL, O_NONBLOCK, 0);
    call(__NR_fcntl, i + 1, F_SETFL, O_WRONLY | O_NONBLOCK, 0);
    relays[i].from = pipe[0];
    relays[i].to = i + 1;
    ends[i] = pipe[1];
  }
  return 0;
}

static void close_relay(struct relay *relay) {
  if (relay->from > 0) call(__NR_close, relay->from, 0, 0, 0);
  relay->from = 0;
}

/* Returns 0 while the engine accepts nothing. */
static int flush(struct relay *relay) {
  while (relay->begin < relay->end) {
    long n = call(__NR_write, relay->to, relay->data + relay->begin, relay->end - relay->begin, 0);
    if (n == -EAGAIN) return 0;
    if (n < 0) {
      /* The engine has closed its end. The command gets the same error from its own pipe. */
      close_relay(relay);
      n = relay->end - relay->begin;
    }
    relay->begin += n;
  }
  return 1;
}

static void put_byte(struct relay *relay, u8 byte) {
  relay->data[relay->end++] = byte;
  relay->last = byte;
  relay->part++;
  bucket.tokens--;
  if (byte != '\n') return;
  relay->last = 0;
  relay->part = 0;
  bucket.tokens -= LINE_TOKENS;
}

static void cut(struct relay *relay) {
  put_byte(relay, CUT);
  put_byte(relay, '\n');
}

/* Bytes that are no text may have any number of rests, so that their parts end too. */
static int is_full(const struct relay *relay, u8 next) {
  int in_character = (next & 0xc0) == 0x80 && relay->part < LONGEST_PART + CHARACTER_REST;
  return relay->part >= LONGEST_PART && !in_character;
}

/* Returns the number of bytes that the command wrote. */
static long read_piece(struct relay *relay, u64 most) {
  static u8 input[PIECE];
  long n = call(__NR_read, relay->from, input, most < PIECE ? most : PIECE, 0);
  if (n == -EAGAIN) return 0;
  if (n <= 0) {
    close_relay(relay);
    return 0;
  }
  relay->begin = 0;
  relay->end = 0;
  for (long i = 0; i < n; i++) {
    if (input[i] == '\n' ? relay->last == CUT : is_full(relay, input[i])) cut(relay);
    put_byte(relay, input[i]);
  }
  return n;
}

void relay_output(int signals, const struct ways *ways, int tick) {
  for (;;) {
    /* The kernel passes over a negative descriptor. */
    struct pollfd polled[3 + STREAMS] = {{.fd = signals, .events = POLLIN},
                                         {.fd = ways->agents, .events = POLLIN},
                                         {.fd = ways->handovers, .events = POLLIN}};
    int count = 3;
    int waits = tick || signals < 0;
    refill();
    for (struct relay *relay = relays; relay < relays + STREAMS; relay++) {
      if (relay->begin < relay->end)
        polled[count++] = (struct pollfd){.fd = relay->to, .events = POLLOUT};
      else if (relay->from > 0 && bucket.tokens > 0)
        polled[count++] = (struct pollfd){.fd = relay->from, .events = POLLIN};
      else if (relay->from > 0)
        waits = 1;
    }
    struct __kernel_timespec pause = {0, TICK};
    long ready = call6(__NR_ppoll, (long)polled, count, waits ? (long)&pause : 0, 0, 0, 0);
    if (ready > 0)
      for (struct relay *relay = relays; relay < relays + STREAMS; relay++)
        if (flush(relay) && relay->from > 0 && bucket.tokens > 0 && read_piece(relay, PIECE) > 0) flush(relay);
    if (polled[0].revents || polled[1].revents || polled[2].revents || tick || signals < 0) return;
  }
}

void drain(void) {
  long limit = now() + DRAIN_LIMIT;
  for (struct relay *relay = relays; relay < relays + STREAMS; relay++) {
    int left = 0;
    if (relay->from > 0) call(__NR_ioctl, relay->from, FIONREAD, &left, 0);
    for (;;) {
      if (!flush(relay)) {
        struct pollfd polled = {.fd = relay->to, .events = POLLOUT};
        struct __kernel_timespec pause = {0, TICK};
        call6(__NR_ppoll, (long)&polled, 1, (long)&pause, 0, 0, 0);
        if (now() > limit) return;
        continue;
      }
      if (left <= 0 || relay->from == 0) break;
      long n = read_piece(relay, left);
      if (n == 0) break;
      left -= n;
    }
  }
}
