/* The input and output of commands and connections, within the room and the credit that the service and the agent
   gave each other. */
#ifndef SANDKEEP_STREAMS_H
#define SANDKEEP_STREAMS_H

#include "channels.h"

/* Takes input from a request. Input beyond the room is dropped: the service breaks the protocol. */
void handle_stdin(Channel *c, Reader *from);

/* Writes the input that waits, as far as the command or connection takes it, and acknowledges it. May end the
   channel. */
void push_input(Channel *c);

/* Moves output into one frame of `type`. May end the channel. */
void pull(Channel *c, int *fd, u8 type);

/* Ends one direction from the other side. May end the channel. */
void end_stream(Channel *c, int *fd);

/* Kills the processes of the channel, ends it and tells the service. */
void close_channel(Channel *c);

#endif
