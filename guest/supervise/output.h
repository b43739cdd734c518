/*
 * The output of the command, as process 1 of the sandbox sends it: frames of the stream (1: standard output, 2: error
 * output), a zero, the length (u16, little-endian) and bytes. The sandbox may send anything.
 */
#ifndef SANDKEEP_SUPERVISE_OUTPUT_H
#define SANDKEEP_SUPERVISE_OUTPUT_H

#include "log.h"

/* Logs the frames in the next bytes. After a malformed one, the bytes are dropped until the end of the run. */
void take_output(struct log *log, const u8 *data, long n);

/* The begin of a frame whose end the sandbox has in its memory: in the file `frame`, for the run that continues it. */
void keep_frame(void);
void restore_frame(void);

#endif
