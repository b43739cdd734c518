/* A TCP port that process 1 listens on. The kernel completes each connection, and nothing reads it. */
#ifndef SANDKEEP_LISTEN_H
#define SANDKEEP_LISTEN_H

#include "../common/kernel.h"

/* Returns a negative errno on failure. */
long listen_on(long port);

#endif
