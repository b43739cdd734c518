/* The network of the machine: one interface with one address of IPv4, and the loopback. */
#ifndef SANDKEEP_NETWORK_H
#define SANDKEEP_NETWORK_H

#include "../common/kernel.h"

void open_loopback(void);

/* Gives the interface its name and its address. `record`: of the boot configuration. */
void open_network(u8 *record);

#endif
