#include "rights.h"
#include "failure.h"
#include "../common/kernel.h"
#include <linux/capability.h>
#include <linux/prctl.h>

void forbid_rights(void) {
  for (long capability = 0; capability <= CAP_LAST_CAP; capability++)
    call6(__NR_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0, 0);
  need(call6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0), "refuse new privileges", 0);
}

void drop_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct nothing[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}, {0, 0, 0}};
  need(call(__NR_capset, &header, nothing, 0, 0), "give up the capabilities", 0);
}
