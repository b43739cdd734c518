/* The frames that the agent sends. A frame is written to `outgoing` behind its header, and then sent. */
#ifndef SANDKEEP_FRAMES_H
#define SANDKEEP_FRAMES_H

#include "../protocol.h"
#include "tables.h"

extern u8 outgoing[HEADER_BYTES + FRAME_ROOM];

/* The place of the payload. */
#define PAYLOAD (outgoing + HEADER_BYTES)

/* Sends the `n` bytes at PAYLOAD. Waits for the service; ends the agent when the service is gone. */
void send_outgoing(u32 id, u8 type, u32 n);

/* Answers that are one number (u32). */
void send_number(u32 id, u8 type, u32 value);

void send_exit(u32 id, u32 code, u8 oom);

/* `error`: a negative errno. */
void send_failure(u32 id, u8 step, long error);

/* The data of an answer to a file operation. */
#define ANSWER_DATA (PAYLOAD + DONE_BYTES)

/* Answers a file operation: `error` is a negative errno, or else `n` bytes are at ANSWER_DATA. */
void answer(u32 id, long error, u32 n);

#endif
