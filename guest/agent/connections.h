/* TCP connections. A connection is over when both ends have sent everything, or when it fails. */
#ifndef SANDKEEP_CONNECTIONS_H
#define SANDKEEP_CONNECTIONS_H

#include "channels.h"

void handle_connect(u32 id, Reader *from);

/* The socket of a CONNECTING channel is ready: the connection is open, or has failed. */
void finish_connect(Channel *c);

/* `error`: a negative errno. Ends the channel. */
void fail_connection(Channel *c, long error);

/* The service, or the other end, sends nothing more. Each may end the channel. */
void end_sending(Channel *c);
void end_receiving(Channel *c);

#endif
