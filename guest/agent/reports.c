#include "reports.h"
#include "commands.h"
#include "frames.h"

void give_up(int report, u8 step, long error) {
  u8 told[FAILED_BYTES];
  put_failed(told, (struct failed_layout){step, (u32)-error});
  call(__NR_write, report, told, sizeof told, 0);
  leave(127);
}

void read_report(Channel *c) {
  /* Nothing read is a step and an error of 0: the end of the pipe without a report. A pipe never divides so few
     bytes. */
  u8 told[FAILED_BYTES] = {0};
  long got = call(__NR_read, c->report, told, sizeof told, 0);
  /* poll tells of it again. */
  if (got == -EINTR) return;
  close_fd(&c->report);
  Reader from = {told, told + sizeof told, 0};
  struct failed_layout failed = take_failed(&from);
  if (c->state == STARTING) return report_start(c, (long)failed.errno, failed.step);
  /* Work always reports, so work that did not was killed. */
  answer(c->id, got == sizeof told ? -(long)failed.errno : -EIO, 0);
  forget(c);
}
