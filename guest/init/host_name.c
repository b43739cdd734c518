#include "host_name.h"
#include "../common/kernel.h"
#include "output.h"
#include <linux/utsname.h>

/* A service that was killed at this moment sets no name. The sandbox then keeps the other one, and runs. */
#define HOST_NAME_LIMIT (5 * SECOND)

int has_host_name(const char *name) {
  static long since;
  struct new_utsname names;
  if (!since) since = now();
  if (call(__NR_uname, (long)&names, 0, 0, 0) < 0) return 1;
  u64 n = length(name);
  return (n < sizeof names.nodename && same(names.nodename, name, n + 1)) || now() - since > HOST_NAME_LIMIT;
}
