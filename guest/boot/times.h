/* The clocks of the machine. */
#ifndef SANDKEEP_TIMES_H
#define SANDKEEP_TIMES_H

#include "../common/kernel.h"

#define SECOND 1000000000L

/* Of a clock that never goes back, in nanoseconds. */
long now(void);

void pause_for(long nanoseconds);

/* Sets the clock. `nanoseconds`: since 1970. */
void set_clock(long nanoseconds);

#endif
