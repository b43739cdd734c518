#include "network.h"
#include "../protocol.h"
#include "devices.h"
#include "failure.h"
#include <linux/fcntl.h>
#include <linux/in.h>
#include <linux/sockios.h>

#define INTERFACE "eth0"
#define FAMILY_V4 2
#define DATAGRAM 2
#define INTERFACE_NAME 16
#define UP 1
#define RUNNING 0x40
#define ROUTE_UP 1
#define ROUTE_GATEWAY 2
#define ROUTE_HOST 4

/* The headers of the kernel have both only with those of a library. */
struct request {
  char name[INTERFACE_NAME];
  union {
    struct sockaddr_in address;
    char new_name[INTERFACE_NAME];
    short flags;
    int mtu;
    char room[24];
  };
};

struct route {
  unsigned long pad1;
  struct sockaddr_in target, gateway, mask;
  unsigned short flags;
  short pad2;
  unsigned long pad3;
  void *pad4;
  short metric;
  char *device;
  unsigned long mtu, window;
  unsigned short initial_rtt;
};

static long configure(long operation, const char *name, struct request request) {
  long socket = call(__NR_socket, FAMILY_V4, DATAGRAM | O_CLOEXEC, 0, 0);
  if (socket < 0) return socket;
  copy_text(request.name, sizeof request.name, name, length(name));
  long failed = call(__NR_ioctl, socket, operation, &request, 0);
  call(__NR_close, socket, 0, 0, 0);
  return failed;
}

static struct sockaddr_in address_of(const u8 *bytes) {
  struct sockaddr_in address = {.sin_family = FAMILY_V4};
  if (bytes) memcpy(&address.sin_addr, bytes, 4);
  return address;
}

static long add_route(const u8 *target, const u8 *gateway) {
  static const u8 all[] = {255, 255, 255, 255};
  struct route route = {
    .target = address_of(target),
    .gateway = address_of(gateway),
    .mask = address_of(target ? all : 0),
    .flags = (unsigned short)(ROUTE_UP | (gateway ? ROUTE_GATEWAY : 0) | (target ? ROUTE_HOST : 0)),
    .device = INTERFACE,
  };
  long socket = call(__NR_socket, FAMILY_V4, DATAGRAM | O_CLOEXEC, 0, 0);
  if (socket < 0) return socket;
  long failed = call(__NR_ioctl, socket, SIOCADDRT, &route, 0);
  call(__NR_close, socket, 0, 0, 0);
  return failed;
}

void open_loopback(void) { configure(SIOCSIFFLAGS, "lo", (struct request){.flags = UP | RUNNING}); }

void open_network(u8 *record) {
  static const u8 single[] = {255, 255, 255, 255};
  Reader from = {record, record + BOOT_NETWORK_BYTES, 0};
  struct boot_network_layout network = take_boot_network(&from);
  const u8 *address = from.at, *gateway = address + 4;
  char name[NAME_ROOM];
  find_interface(name);
  if (!same(name, INTERFACE, sizeof INTERFACE)) {
    struct request request = {.new_name = INTERFACE};
    need(configure(SIOCSIFNAME, name, request), "name the network interface", name);
  }
  /* The addresses of the sandbox are of IPv4. A kernel without IPv6 has no such file. */
  write_text("/proc/sys/net/ipv6/conf/" INTERFACE "/disable_ipv6", "1");
  const char *what = "set up the network:";
  need(configure(SIOCSIFMTU, INTERFACE, (struct request){.mtu = (int)network.mtu}), what, "its MTU");
  need(configure(SIOCSIFADDR, INTERFACE, (struct request){.address = address_of(address)}), what, "its address");
  need(configure(SIOCSIFNETMASK, INTERFACE, (struct request){.address = address_of(single)}), what, "its mask");
  need(configure(SIOCSIFFLAGS, INTERFACE, (struct request){.flags = UP | RUNNING}), what, "its start");
  need(add_route(gateway, 0), what, "the route to the gateway");
  need(add_route(0, gateway), what, "the default route");
}
