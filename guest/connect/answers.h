/*
 * The answers to the service: lines of JSON on the channel between processes of Node. A line whose "cmd" is NODE_HANDLE
 * comes with a descriptor, from which Node makes a socket.
 */
#ifndef SANDKEEP_ANSWERS_H
#define SANDKEEP_ANSWERS_H

#include "../common/fail.h"

#define CHANNEL 3

/* The program is in the namespace, and has no rights any more. */
void answer_ready(void);

/* Passes a connection on, and closes it here. */
void answer_connected(u32 id, int fd);

/* `error`: a negative errno. */
void answer_failed(u32 id, long error);

#endif
