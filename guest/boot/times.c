#include "times.h"
#include <linux/time.h>
#include <linux/time_types.h>

long now(void) {
  struct __kernel_timespec time;
  call(__NR_clock_gettime, CLOCK_MONOTONIC, &time, 0, 0);
  return time.tv_sec * SECOND + time.tv_nsec;
}

void pause_for(long nanoseconds) {
  struct __kernel_timespec time = {nanoseconds / SECOND, nanoseconds % SECOND};
  call(__NR_nanosleep, &time, 0, 0, 0);
}

void set_clock(long nanoseconds) {
  struct __kernel_timespec time = {nanoseconds / SECOND, nanoseconds % SECOND};
  call(__NR_clock_settime, CLOCK_REALTIME, &time, 0, 0);
}
