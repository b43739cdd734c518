#include "failure.h"
#include "../protocol.h"
#include "control.h"
#include "files.h"
#include <linux/reboot.h>

#define EXIT_NOT_STARTED 125

long failure_pipe = -1;

void power_off(void) {
  call(__NR_sync, 0, 0, 0, 0);
  for (;;) call(__NR_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_POWER_OFF, 0);
}

void end_with(const char *words) {
  if (failure_pipe >= 0) {
    call(__NR_write, failure_pipe, words, length(words), 0);
    leave(EXIT_NOT_STARTED);
  }
  say_failure(words);
  flush_control();
  power_off();
}

void give_up(const char *what, const char *name, long error) {
  char text[LIMIT_CONTROL_LINE];
  char number[24];
  *put_number(number, (u64)-error) = 0;
  join(text, sizeof text - sizeof "failed ", "cannot ", what, name ? " " : "", name ? name : "", ": error ", number, (char *)0);
  end_with(text);
}

long need(long result, const char *what, const char *name) {
  if (result < 0) give_up(what, name, result);
  return result;
}
