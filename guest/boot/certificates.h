/* Certificates in texts of PEM. */
#ifndef SANDKEEP_CERTIFICATES_H
#define SANDKEEP_CERTIFICATES_H

#include "../common/kernel.h"

int same_bytes(const u8 *one, const u8 *other, u64 n);

/* Before `with_authorities`: the authorities of the configuration. */
void read_added(void);

/*
 * Writes a bundle with the authorities, and without those that an earlier start has added. Its other text stays. It is
 * longer than before by at most the length of the authorities and one. Returns its length.
 */
u64 with_authorities(u8 *to, const u8 *bundle, u64 n);

#endif
