/*
 * The output of the command on its way to the engine. The engine spends processor time and disk on every byte and line,
 * so a bucket of tokens limits their rate. A command that writes faster waits in its write; nothing is lost.
 *
 * Engines divide a longer line at 16 KiB, give all parts one time, and store a character on the border as two damaged
 * ones. Process 1 therefore ends a part before that, at a character, with CUT and a line break. A line that ends with
 * CUT itself gets both once more, so readers of the log remove each CUT before a line break, with the line break.
 *
 * The command has pipes of process 1, and process 1 has the pipes of the engine. PR_SET_DUMPABLE closes /proc/1/fd to
 * the processes of the sandbox.
 */
#ifndef SANDKEEP_OUTPUT_H
#define SANDKEEP_OUTPUT_H

#include "../protocol.h"
#include "service.h"

#define SECOND 1000000000L
#define TICK (SECOND / 50)
#define STREAMS 2
#define PIECE 4096
/* Every second byte may be a line break after CUT. */
#define PIECE_ROOM (2 * PIECE + 8)

/* `from`: the read end of the pipe of the command, or 0. `to`: the engine's pipe. `part`: the bytes of the part of
   a line. */
struct relay {
  int from;
  int to;
  u32 begin;
  u32 end;
  u32 part;
  u8 last;
  u8 data[PIECE_ROOM];
};

extern struct relay relays[STREAMS];

/* Of a clock that never goes back, in nanoseconds. */
long now(void);

/* Makes the pipes of the command: `ends` gets their write ends. Returns a negative errno on failure. `rate`: tokens
   for a second. */
long open_relays(int ends[STREAMS], long rate, long burst);

/* Relays output until `signals` is readable, the service connects, or one `tick` has passed. */
void relay_output(int signals, const struct ways *ways, int tick);

/* Relays what the pipes hold, and not what processes that are left over still write. */
void drain(void);

#endif
