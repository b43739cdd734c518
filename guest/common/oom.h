/* Whether a command ran out of memory: the number of processes that the kernel killed because the sandbox had none
   left. */
#ifndef SANDKEEP_OOM_H
#define SANDKEEP_OOM_H

#include "../protocol.h"

/* Opens the counts. Before it, and where the engine does not show them, every answer is unknown. */
void open_oom_counts(void);

/* The count now, for `before` of oom_killed. */
long oom_kills(void);

/* OOM_NO, OOM_YES or OOM_UNKNOWN. `before`: the count at the start of the command. */
u8 oom_killed(int code, long before);

#endif
