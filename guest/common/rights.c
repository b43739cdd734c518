#include "rights.h"
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/resource.h>

void drop_rights(long user, long also_group) {
  u32 group = (u32)also_group;
  if (user == 0) fail("run as root", -EPERM);
  /* The service may lack the right to narrow this set. No program gets a capability from it without new privileges. */
  for (long capability = 0; capability <= CAP_LAST_CAP; capability++)
    call6(__NR_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0, 0);
  check("refuse new privileges", call6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0));
  check("leave its groups", call(__NR_setgroups, also_group != 0, &group, 0, 0));
  check("change its group", call(__NR_setresgid, user, user, user, 0));
  check("change its user", call(__NR_setresuid, user, user, user, 0));
  if (call(__NR_setresuid, -1, 0, -1, 0) == 0) fail("give up the user root", -EPERM);
  /* The change of the user clears them for a service of root only. */
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct nothing[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}, {0, 0, 0}};
  check("give up its capabilities", call(__NR_capset, &header, nothing, 0, 0));
  /* With a pipe in core_pattern the kernel ignores a limit of 0, but not one of 1. */
  const struct rlimit64 none = {1, 1};
  check("forbid core dumps", call(__NR_prlimit64, 0, RLIMIT_CORE, &none, 0));
  check("close its memory", call6(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0));
  /* After the change of the user, which clears it. */
  check("die with the service", call6(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0));
}
