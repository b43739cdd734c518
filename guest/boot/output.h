/*
 * The port `output`: the output of the command, in frames of a stream (u8: 1 or 2), a zero (u8), a length (u16,
 * little-endian) and bytes. A service that does not read stops the command at its next write, and nothing else.
 */
#ifndef SANDKEEP_BOOT_OUTPUT_H
#define SANDKEEP_BOOT_OUTPUT_H

/* `streams`: the read ends of the pipes of process 1. */
void open_output(int port, const int streams[2]);

/* Passes on so much as the port takes. Returns whether something was done. */
int pump_output(void);

/* Nothing is left to pass on. */
int is_output_empty(void);

#endif
