#include "files.h"
#include "../common/fail.h"
#include <linux/fcntl.h>
#include <linux/landlock.h>

#define READ LANDLOCK_ACCESS_FS_READ_FILE
#define READ_WRITE (READ | LANDLOCK_ACCESS_FS_WRITE_FILE)
#define READ_BELOW (READ | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE)
/* Each one of the first version. */
#define ALL (LANDLOCK_ACCESS_FS_MAKE_SYM * 2 - 1)

static const struct {
  const char *path;
  u64 rights;
} allowed[] = {
    {"/usr", READ_BELOW},
    {"/bin", READ_BELOW},
    {"/sbin", READ_BELOW},
    {"/lib", READ_BELOW},
    {"/lib64", READ_BELOW},
    {"/nix/store", READ_BELOW},
    {"/proc", READ_BELOW},
    /* The loader, and the libraries of the monitor. */
    {"/etc/ld.so.cache", READ},
    {"/etc/ld.so.preload", READ},
    {"/etc/localtime", READ},
    {"/etc/ssl/openssl.cnf", READ},
    {"/dev/kvm", READ_WRITE},
    {"/dev/null", READ_WRITE},
    {"/dev/random", READ},
    {"/dev/urandom", READ},
    {"/dev/zero", READ},
};

static long allow(long rules, long fd, u64 rights) {
  const struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = (int)fd};
  return call(__NR_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

void restrict_files(long inherited) {
  const struct landlock_ruleset_attr handled = {.handled_access_fs = ALL};
  long rules = call(__NR_landlock_create_ruleset, &handled, sizeof handled, 0, 0);
  /* A filter of system calls may not know it. */
  if (rules == -ENOSYS || rules == -EOPNOTSUPP || rules == -EPERM) return;
  check("restrict its files", rules);
  for (u64 i = 0; i < sizeof allowed / sizeof *allowed; i++) {
    long fd = call(__NR_openat, AT_FDCWD, allowed[i].path, O_PATH | O_CLOEXEC, 0);
    if (fd < 0) continue;
    check("allow a file", allow(rules, fd, allowed[i].rights));
    call(__NR_close, fd, 0, 0, 0);
  }
  /* It opens its kernel again by /proc/self/fd. A file without a path takes no rule, and needs none. */
  for (long fd = 3; fd < inherited; fd++) allow(rules, fd, READ);
  check("restrict its files", call(__NR_landlock_restrict_self, rules, 0, 0, 0));
  call(__NR_close, rules, 0, 0, 0);
}
