/* The sockets of the gateway, in the order of LISTENERS in src/gateway/protocol.ts. */
#ifndef SANDKEEP_LISTENERS_H
#define SANDKEEP_LISTENERS_H

#include "../common/kernel.h"

#define FIRST_LISTENER 3
#define LISTENERS 5

/* Opens them as descriptors from FIRST_LISTENER on, which a new program inherits. Returns 0, or a negative errno. */
long open_listeners(void);

#endif
