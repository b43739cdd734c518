/* The random numbers of the kernel. */
#ifndef SANDKEEP_ENTROPY_H
#define SANDKEEP_ENTROPY_H

#include "../common/kernel.h"

#define SEED_BYTES 64

/* Adds at most SEED_BYTES random bytes of the service, which the kernel trusts. */
void add_entropy(const u8 *seed, u64 n);

#endif
