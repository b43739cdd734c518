#include "devices.h"
#include "failure.h"
#include "times.h"
#include <linux/fcntl.h>

/* Software emulation on a busy machine is slow. */
#define DEVICE_LIMIT (30 * SECOND)
#define PAUSE (SECOND / 200)

struct search {
  const char *directory; /* of sysfs */
  const char *attribute; /* a file of each device */
  const char *value;
  char *found;
};

static long visit(const char *name, void *context) {
  struct search *search = context;
  char path[NAME_ROOM * 2], value[NAME_ROOM];
  join(path, sizeof path, search->directory, "/", name, search->attribute, (char *)0);
  if (read_text(path, value, sizeof value) < 0) return 0;
  int matches = length(value) == length(search->value) && same(value, search->value, length(value));
  if (!matches) return 0;
  join(search->found, NAME_ROOM, "/dev/", name, (char *)0);
  return 1;
}

static void find(struct search *search, const char *what) {
  long limit = now() + DEVICE_LIMIT;
  while (each_entry(search->directory, visit, search) != 1) {
    if (now() > limit) give_up(what, search->value, -ENODEV);
    pause_for(PAUSE);
  }
}

void find_disk(const char *serial, char path[NAME_ROOM]) {
  struct search search = {"/sys/block", "/serial", serial, path};
  find(&search, "find the disk");
}

int open_port(const char *name) {
  char path[NAME_ROOM];
  struct search search = {"/sys/class/virtio-ports", "/name", name, path};
  find(&search, "find the port");
  /* The node can be later than its name. */
  for (long limit = now() + DEVICE_LIMIT;; pause_for(PAUSE)) {
    long port = call(__NR_openat, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
    if (port != -ENOENT || now() > limit) return (int)need(port, "open the port", name);
  }
}

static long visit_interface(const char *name, void *context) {
  if (same(name, "lo", 3)) return 0;
  copy_text(context, NAME_ROOM, name, length(name));
  return 1;
}

void find_interface(char name[NAME_ROOM]) {
  long limit = now() + DEVICE_LIMIT;
  while (each_entry("/sys/class/net", visit_interface, name) != 1) {
    if (now() > limit) give_up("find the network interface", 0, -ENODEV);
    pause_for(PAUSE);
  }
}
