/*
 * File operations. The owner of an operation is a connection of a client: its handles close with it. Relative paths
 * begin at the root. Operations that may take long run in a child process, on a channel; the agent answers all others
 * before it reads on.
 */
#ifndef SANDKEEP_FILE_REQUESTS_H
#define SANDKEEP_FILE_REQUESTS_H

#include "../common/bytes.h"

void handle_files(u32 id, Reader *from);

/* Closes the handles of an owner, and ends its operations. */
void end_owner(u32 owner);

#endif
