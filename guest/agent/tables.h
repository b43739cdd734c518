/* The sizes of the agent's tables. The fuzzer has smaller ones, which its inputs fill up (fuzz/tables.h). */
#ifndef SANDKEEP_TABLES_H
#define SANDKEEP_TABLES_H

#include "../protocol.h"

#define FRAME_ROOM LIMIT_PAYLOAD
#define STDIN_ROOM LIMIT_INPUT_WINDOW
#define TEXTS_MAX LIMIT_TEXTS
#define CHANNELS 256
#define CHUNK 65536 /* of output in one frame: as much as a pipe holds */
#define HANDLES 4096
#define OWNER_HANDLES 1024

#endif
