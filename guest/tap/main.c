/*
 * Starts a program with a tap of another network namespace.
 *
 *   tap NAMESPACE DESCRIPTOR LINK PROGRAM ARGUMENT...
 *
 * NAMESPACE is an inherited descriptor of a network namespace that has the tap LINK. The program stays in the namespace
 * of the caller, and gets the tap as DESCRIPTOR. It inherits NAMESPACE too, which keeps the namespace alive.
 */
#include "../common/execute.h"
#include "../common/fail.h"
#include <linux/fcntl.h>
#include <linux/if_tun.h>
#include <linux/ioctl.h>
#include <linux/sched.h>

#define NAME_ROOM 16

/* The structure of the ioctl. The headers of the kernel that declare it need those of a library. */
typedef struct {
  char name[NAME_ROOM];
  u16 flags;
  char unused[22];
} Request;

__attribute__((used, noreturn)) void start(long *stack) {
  program_name = "tap";
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  char **environment = argv + argc + 1;
  if (argc < 5) fail("read the arguments", -EINVAL);
  long namespace = parse(argv[1]);
  long wanted = parse(argv[2]);
  Request request;
  memset(&request, 0, sizeof request);
  copy_text(request.name, sizeof request.name, argv[3], length(argv[3]));
  /* The header that QEMU finds by itself lets packets of many segments pass whole. */
  request.flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;

  long own = call(__NR_openat, AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
  check("open the network namespace", own);
  check("enter the network namespace", call(__NR_setns, namespace, CLONE_NEWNET, 0, 0));
  long tap = call(__NR_openat, AT_FDCWD, "/dev/net/tun", O_RDWR | O_CLOEXEC, 0);
  check("open /dev/net/tun", tap);
  check("take the tap", call(__NR_ioctl, tap, TUNSETIFF, &request, 0));
  check("leave the network namespace", call(__NR_setns, own, CLONE_NEWNET, 0, 0));
  /* It may have the number already. The kernel refuses to duplicate a descriptor to itself. */
  long moved = tap == wanted ? call(__NR_fcntl, tap, F_SETFD, 0, 0) : call(__NR_dup3, tap, wanted, 0, 0);
  check("move the tap", moved);
  fail("start the program", execute(argv + 4, environment));
}
