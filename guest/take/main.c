/*
 * Opens inotify instances or pseudo-terminals, of which the kernel has a bounded number.
 *
 *   take inotify|terminals        opens one, and exits: with 125 where the kernel refuses it
 *   take inotify|terminals all    opens all that it gets, again and again, and keeps them
 *
 * Only "npm run bench -- neighbours" runs it: the images of sandboxes have no program that does this.
 */
#include "../common/fail.h"
#include <linux/fcntl.h>
#include <linux/inotify.h>
#include <linux/resource.h>
#include <linux/time_types.h>

/* Soon enough to take an instance that a neighbour has closed, and rare enough to leave it the processor. */
#define RETRY_NS 10000000

/* A watch counts beside its instance. One of each is enough: instances end first, unless the operator raised them. */
static long open_inotify(void) {
  long instance = call(__NR_inotify_init1, IN_CLOEXEC, 0, 0, 0);
  if (instance < 0) return instance;
  long watch = call(__NR_inotify_add_watch, instance, "/", IN_CREATE, 0);
  if (watch >= 0) return instance;
  call(__NR_close, instance, 0, 0, 0);
  return watch;
}

static long open_terminal(void) {
  return call(__NR_openat, AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
}

__attribute__((used, noreturn)) void start(long *stack) {
  program_name = "take";
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  if (argc < 2) fail("read the arguments", -EINVAL);
  int is_inotify = same(argv[1], "inotify", sizeof "inotify");
  if (!is_inotify && !same(argv[1], "terminals", sizeof "terminals")) fail("read the arguments", -EINVAL);
  if (argc == 2) {
    check(is_inotify ? "open an inotify instance" : "open a pseudo-terminal",
          is_inotify ? open_inotify() : open_terminal());
    leave(0);
  }
  struct rlimit64 files;
  check("read the limit of open files", call(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, &files));
  files.rlim_cur = files.rlim_max;
  check("raise the limit of open files", call(__NR_prlimit64, 0, RLIMIT_NOFILE, &files, 0));
  for (;;) {
    if ((is_inotify ? open_inotify() : open_terminal()) >= 0) continue;
    struct __kernel_timespec pause = {0, RETRY_NS};
    call(__NR_nanosleep, &pause, 0, 0, 0);
  }
}
