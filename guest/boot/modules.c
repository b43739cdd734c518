#include "modules.h"
#include "failure.h"
#include "files.h"
#include <linux/fcntl.h>

#define DIRECTORY "/modules"
#define PATH_BYTES (sizeof DIRECTORY + NAME_ROOM)

void load_module(const char *name) {
  char path[PATH_BYTES];
  join(path, sizeof path, DIRECTORY "/", name, (char *)0);
  long file = need(call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), "open the kernel module", name);
  long failed = call(__NR_finit_module, file, "", 0, 0);
  /* Without its device a driver may refuse to be there. The device is then missed by name. */
  if (failed != -EEXIST && failed != -ENODEV) need(failed, "load the kernel module", name);
  call(__NR_close, file, 0, 0, 0);
}

void load_base_modules(void) {
  char names[4096];
  long n = need(read_text(DIRECTORY "/base", names, sizeof names), "read", DIRECTORY "/base");
  for (long begin = 0, end; begin < n; begin = end + 1) {
    for (end = begin; end < n && names[end] != '\n'; end++) continue;
    names[end] = 0;
    load_module(names + begin);
  }
}

static long remove_module(const char *name, void *context) {
  char path[PATH_BYTES];
  (void)context;
  call(__NR_unlinkat, AT_FDCWD, join(path, sizeof path, DIRECTORY "/", name, (char *)0), 0, 0);
  return 0;
}

void remove_modules(void) { each_entry(DIRECTORY, remove_module, 0); }
