#ifndef SANDKEEP_CLOCK_H
#define SANDKEEP_CLOCK_H

#include "../common/kernel.h"

#define SECOND 1000000000L

/* In nanoseconds: since 1970, and of a clock that never goes back. */
long wall_clock(void);
long steady_clock(void);

#endif
