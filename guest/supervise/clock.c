#include "clock.h"
#include <linux/time.h>
#include <linux/time_types.h>

static long read_clock(long clock) {
  struct __kernel_timespec time;
  call(__NR_clock_gettime, clock, &time, 0, 0);
  return time.tv_sec * SECOND + time.tv_nsec;
}

long wall_clock(void) { return read_clock(CLOCK_REALTIME); }

long steady_clock(void) { return read_clock(CLOCK_MONOTONIC); }
