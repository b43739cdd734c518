#include "halt.h"
#include "monitor.h"

static int has_halted;

void begin_halt(void) { has_halted = 1; }
void end_halt(void) { has_halted = 0; }
int is_halted(void) { return has_halted; }

void take_refusal(void) {
  if (has_halted) kill_monitor();
}

void check_halt(void) {
  if (has_halted) say_qmp("{\"execute\":\"cont\"}\n");
}
