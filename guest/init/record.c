#include "record.h"
#include "../common/oom.h"
#include "output.h"
#include <asm/ioctls.h>
#include <linux/time.h>
#include <linux/time_types.h>

#define SAY_LIMIT SECOND

char *record;
long record_copy = -1;
long kills_before;

/* CODE SIGNAL OOM MICROSECONDS. and hyphens. A reader may come at any moment, so the first character is the last
   one written. */
static void write_record(int code, int signal, u8 oom) {
  struct __kernel_timespec time;
  call(__NR_clock_gettime, CLOCK_REALTIME, &time, 0, 0);
  char text[LIMIT_RECORD * 2];
  char *end = put_number(text, (u64)code);
  *end++ = ' ';
  end = put_number(end, (u64)signal);
  *end++ = ' ';
  end = put_number(end, oom);
  *end++ = ' ';
  end = put_number(end, (u64)time.tv_sec * 1000000 + (u64)time.tv_nsec / 1000);
  *end++ = '.';
  long n = end - text;
  if (record_copy >= 0) call(__NR_write, record_copy, text, n, 0);
  if (!record || n > LIMIT_RECORD) return;
  volatile char *to = record;
  for (long i = n - 1; i >= 0; i--) to[i] = text[i];
}

/* The bytes that the engine has not read yet. */
static int unread(void) {
  int all = 0;
  for (int output = 1; output <= STREAMS; output++) {
    int left = 0;
    call(__NR_ioctl, output, FIONREAD, &left, 0);
    all += left;
  }
  return all;
}

/* Writes the last line of the log. The engine reads both pipes at once, so they are empty first: for the pause it
   stamps what it has read. An engine that does not read holds nothing up. */
static void say(const char *text, u64 n) {
  long limit = now() + SAY_LIMIT;
  struct __kernel_timespec pause = {0, TICK};
  do call6(__NR_ppoll, 0, 0, (long)&pause, 0, 0, 0);
  while (unread() > 0 && now() < limit);
  if (unread() == 0) call(__NR_write, 2, text, n, 0);
}

/* The last line of the log of the command. */
static void say_end(int code, int signal, u8 oom) {
  char text[128];
  char *end = text;
  /* A line of the command may have no end. */
  const struct relay *errors = &relays[1];
  if (errors->end > 0 && errors->data[errors->end - 1] != '\n') *end++ = '\n';
  const char *words = signal ? "sandkeep: the command was killed by signal " : "sandkeep: the command ended with code ";
  while (*words) *end++ = *words++;
  end = put_number(end, (u64)(signal ? signal : code));
  words = oom == OOM_YES ? ": the sandbox ran out of memory\n" : "\n";
  while (*words) *end++ = *words++;
  say(text, (u64)(end - text));
}

void record_end(int status, int until_exit) {
  int signal = status & 0x7f;
  int code = signal ? 128 + signal : (status >> 8) & 0xff;
  u8 oom = oom_killed(code, kills_before);
  write_record(code, signal, oom);
  drain();
  /* The log of a command that succeeds has its output alone, as clients expect. The end of a run has the code of
     the command that ends it, and not the signal. */
  if (until_exit ? signal : code) say_end(code, signal, oom);
}
