/* The agent's tables in small: included before the files of the agent, in the place of agent/tables.h. */
#ifndef SANDKEEP_TABLES_H
#define SANDKEEP_TABLES_H

#include "../protocol.h"

/* A record of a directory is less than twice as long as its entry, of which there are 16 KiB. */
#define FRAME_ROOM 32768
#define CHANNELS 8
#define STDIN_ROOM 512
#define CHUNK 512
#define HANDLES 16
#define OWNER_HANDLES 6
#define TEXTS_MAX 24

#endif
