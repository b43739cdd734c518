/*
 * The output of the command on its way to the engine. The engine spends processor time and disk on every byte and line,
 * so a bucket of tokens limits their rate. A command that writes faster waits in its write; nothing is lost.
 *
 * Engines divide a longer line at 16 KiB, give all parts one time, and store a character on the border as two damaged
 * ones. Process 1 therefore ends a part before that, at a character, with CUT and a line break. A line that ends with
 * CUT itself gets both once more, so readers of the log remove each CUT before a line break, with the line break.
 *
 * The command has pipes of process 1, and process 1 has the pipes of the engine. PR_SET_DUMPABLE closes /proc/1/fd to
 * the processes of the sandbox.
 */
#ifndef SANDKEEP_INIT_OUTPUT_H
#define SANDKEEP_INIT_OUTPUT_H

#include "kernel.h"
#include <asm/fcntl.h>
#include <asm/ioctls.h>
#include <asm/poll.h>
#include <linux/time_types.h>

#define SECOND 1000000000L
#define TICK (SECOND / 50)
#define CLOCK_MONOTONIC 1
#define PR_SET_DUMPABLE 4
#define STREAMS 2
#define PIECE 4096
/* LONGEST_PART with the rest of a character, CUT and a line break fits into the 16 KiB of an engine. */
#define CUT 0x1f
#define LONGEST_PART (16 * 1024 - 8)
#define CHARACTER_REST 3
/* Every second byte may be a line break after CUT. */
#define PIECE_ROOM (2 * PIECE + 8)
/* The engine's record of a line is about this much longer than the line. */
#define LINE_TOKENS 128
/* How long the last output may wait for the engine. */
#define DRAIN_LIMIT (5 * SECOND)
#define LONGEST_REFILL (100 * SECOND)

/* `from`: the read end of the pipe of the command, or 0. `to`: the engine's pipe. `part`: the bytes of the part of a line. */
struct relay {
  int from;
  int to;
  u32 begin;
  u32 end;
  u32 part;
  u8 last;
  u8 data[PIECE_ROOM];
};

static struct relay relays[STREAMS];
static struct {
  long rate; /* tokens for a second */
  long burst;
  long tokens;
  long refilled;
} bucket;

static long now(void) {
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

/* Makes the pipes of the command: `ends` gets their write ends. Returns a negative errno on failure. */
static long open_relays(int ends[STREAMS], long rate, long burst) {
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

static void put(struct relay *relay, u8 byte) {
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
  put(relay, CUT);
  put(relay, '\n');
}

/* Bytes that are no text may have any number of rests, so that their parts end too. */
static int is_full(const struct relay *relay, u8 next) {
  int in_character = (next & 0xc0) == 0x80 && relay->part < LONGEST_PART + CHARACTER_REST;
  return relay->part >= LONGEST_PART && !in_character;
}

/* Returns the number of bytes that the command wrote. */
static long take(struct relay *relay, u64 most) {
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
    put(relay, input[i]);
  }
  return n;
}

/* Relays output until `signals` is readable, or one `tick` has passed. */
static void relay_output(int signals, int tick) {
  for (;;) {
    struct pollfd polled[1 + STREAMS] = {{.fd = signals, .events = POLLIN}};
    int count = 1;
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
        if (flush(relay) && relay->from > 0 && bucket.tokens > 0 && take(relay, PIECE) > 0) flush(relay);
    if (polled[0].revents || tick || signals < 0) return;
  }
}

/* Relays what the pipes hold, and not what processes that are left over still write. */
static void drain(void) {
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
      long n = take(relay, left);
      if (n == 0) break;
      left -= n;
    }
  }
}

#endif
