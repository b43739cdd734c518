#include "entropy.h"
#include <linux/fcntl.h>
#include <linux/random.h>

void add_entropy(const u8 *seed, u64 n) {
  struct {
    int bits;
    int bytes;
    u8 data[SEED_BYTES];
  } pool;
  if (n > SEED_BYTES) n = SEED_BYTES;
  pool.bits = (int)n * 8;
  pool.bytes = (int)n;
  memcpy(pool.data, seed, n);
  long device = call(__NR_openat, AT_FDCWD, "/dev/urandom", O_WRONLY | O_CLOEXEC, 0);
  if (device < 0) return;
  call(__NR_ioctl, device, RNDADDENTROPY, &pool, 0);
  /* A copy of a machine must not go on with the numbers of the other one. */
  call(__NR_ioctl, device, RNDRESEEDCRNG, 0, 0);
  call(__NR_close, device, 0, 0, 0);
}
