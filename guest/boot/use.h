/* The resources that the sandbox uses, from its control group. */
#ifndef SANDKEEP_USE_H
#define SANDKEEP_USE_H

#include "../common/kernel.h"

struct use {
  u64 processor_micros; /* since its start */
  u64 memory_bytes;     /* without the cache of files that the kernel can drop */
  u64 processes;
};

struct use read_use(void);

/* The processes that the kernel has killed for lack of memory. */
u64 count_oom_kills(void);

#endif
