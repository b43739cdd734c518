/* The devices of the machine, by the names that the service gave them. The drivers find them at any moment. */
#ifndef SANDKEEP_DEVICES_H
#define SANDKEEP_DEVICES_H

#include "files.h"

/* Finds the disk with a serial number, such as /dev/vda. Waits for it, and gives up without it. */
void find_disk(const char *serial, char path[NAME_ROOM]);

/* Opens the port with a name, without blocking. Waits for it, and gives up without it. */
int open_port(const char *name);

/* Finds the network interface that is not the loopback. Waits for it, and gives up without it. */
void find_interface(char name[NAME_ROOM]);

#endif
