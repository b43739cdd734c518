/*
 * The ports of the machine that the sandbox publishes. The rules of the machine carry their packets past these sockets,
 * which only keep other programs from the ports. They close with the supervisor.
 */
#ifndef SANDKEEP_PORTS_H
#define SANDKEEP_PORTS_H

#include "../common/kernel.h"

/* The numbers are the types of sockets. */
enum { HELD_TCP = 1, HELD_UDP = 2 };

struct held_port {
  int type;
  u16 port;
  u32 address;
};

void hold_port(const struct held_port *held);

#endif
