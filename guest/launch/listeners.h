/* The sockets of the gateway, in the order of LISTENERS in src/gateway/protocol.ts. */
#ifndef SANDKEEP_LISTENERS_H
#define SANDKEEP_LISTENERS_H

#include "../common/kernel.h"

#define FIRST_LISTENER 3
#define LISTENERS 5

typedef struct {
  int listeners[LISTENERS];
  /* Gives them to the processes of the network namespace. */
  int socket;
} Kept;

/* Returns 0, or a negative errno. */
long open_listeners(Kept *kept);

/* Gives the listeners to each process that asks, until the standard input ends. */
void hand_out(const Kept *kept);

/* Takes them as descriptors from FIRST_LISTENER on, which a new program inherits. Returns 0, or a negative errno. */
long take_listeners(void);

#endif
