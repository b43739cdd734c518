#include "control.h"
#include "../protocol.h"
#include "entropy.h"
#include "sync.h"
#include "times.h"
#include "use.h"
#include <asm/poll.h>
#include <linux/time_types.h>
#include <stdarg.h>

#define CLOCK_LIMIT (SECOND * 3 / 10)
#define FLUSH_LIMIT (2 * SECOND)
#define TICK (SECOND / 100)
#define OUT_ROOM 2048

int control_port = -1;
int is_stop_requested;
static int has_time;
static char out[OUT_ROOM];
static u64 out_bytes;
static char line[LIMIT_CONTROL_LINE + 1];
static u64 line_bytes;

static void add_line(const char *first, va_list parts) {
  char text[LIMIT_CONTROL_LINE + 1];
  u64 n = 0;
  for (const char *part = first; part; part = va_arg(parts, const char *))
    while (*part && n < LIMIT_CONTROL_LINE) text[n++] = *part++;
  text[n++] = '\n';
  if (n > sizeof out - out_bytes) return;
  memcpy(out + out_bytes, text, n);
  out_bytes += n;
}

void say(const char *first, ...) {
  va_list parts;
  va_start(parts, first);
  add_line(first, parts);
  va_end(parts);
}

/* Also on the console: the port may not be there yet. */
void say_failure(const char *words) {
  say("failed ", words, (char *)0);
  call(__NR_write, 2, "sandkeep: ", sizeof "sandkeep: " - 1, 0);
  call(__NR_write, 2, words, length(words), 0);
  call(__NR_write, 2, "\n", 1, 0);
}

static const char *after(const char *text, const char *prefix) {
  while (*prefix)
    if (*text++ != *prefix++) return 0;
  return text;
}

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void handle_seed(const char *hex) {
  u8 seed[SEED_BYTES];
  u64 n = 0;
  for (; n < sizeof seed && digit(hex[0]) >= 0 && digit(hex[1]) >= 0; hex += 2)
    seed[n++] = (u8)(digit(hex[0]) << 4 | digit(hex[1]));
  if (n > 0) add_entropy(seed, n);
}

static void handle_clock(const char *digits) {
  long number = 0;
  for (int i = 0; i < 19 && digits[i] >= '0' && digits[i] <= '9'; i++) {
    if (number > (0x7fffffffffffffffL - 9) / 10) return;
    number = number * 10 + digits[i] - '0';
  }
  if (number <= 0) return;
  set_clock(number);
  has_time = 1;
}

static void answer_use(void) {
  struct use use = read_use();
  char micros[24], bytes[24], processes[24];
  *put_number(micros, use.processor_micros) = 0;
  *put_number(bytes, use.memory_bytes) = 0;
  *put_number(processes, use.processes) = 0;
  say("use ", micros, " ", bytes, " ", processes, (char *)0);
}

static void handle_line(void) {
  const char *time = after(line, "clock "), *seed = after(line, "seed ");
  if (time) handle_clock(time);
  else if (seed) handle_seed(seed);
  else if (same(line, "use", sizeof "use")) answer_use();
  else if (same(line, "sync", sizeof "sync")) begin_sync();
  else if (same(line, "stop", sizeof "stop")) is_stop_requested = 1;
}

static int read_lines(void) {
  u8 bytes[256];
  int moved = 0;
  long got;
  while ((got = call(__NR_read, control_port, bytes, sizeof bytes, 0)) > 0) {
    moved = 1;
    for (long i = 0; i < got; i++) {
      /* The rest of a line that is too long is dropped, and the line too. */
      if (bytes[i] != '\n') {
        if (line_bytes <= LIMIT_CONTROL_LINE) line[line_bytes++] = (char)bytes[i];
        continue;
      }
      int fits = line_bytes <= LIMIT_CONTROL_LINE;
      line[fits ? line_bytes : 0] = 0;
      line_bytes = 0;
      if (fits) handle_line();
    }
  }
  return moved;
}

int pump_control(void) {
  if (control_port < 0) return 0;
  int moved = read_lines();
  if (out_bytes == 0) return moved;
  long done = call(__NR_write, control_port, out, out_bytes, 0);
  if (done <= 0) return moved;
  out_bytes -= (u64)done;
  move_down(out, out + done, out_bytes);
  return 1;
}

void flush_control(void) {
  long limit = now() + FLUSH_LIMIT;
  for (pump_control(); control_port >= 0 && out_bytes > 0 && now() < limit; pump_control()) pause_for(TICK);
}

static int is_host_connected(void) {
  struct pollfd polled = {.fd = control_port, .events = POLLOUT};
  struct __kernel_timespec at_once = {0, 0};
  call6(__NR_ppoll, (long)&polled, 1, (long)&at_once, 0, 0, 0);
  return !(polled.revents & POLLHUP);
}

void ask_time(void) {
  if (!is_host_connected()) return;
  say("clock", (char *)0);
  for (long limit = now() + CLOCK_LIMIT; now() < limit; pause_for(TICK / 10)) {
    pump_control();
    if (has_time) return;
  }
}
