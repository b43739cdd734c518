/*
 * Logs on the disk of the machine, each with a bound. A log has two files: when the newer one is full, it replaces the
 * older one. Each piece has a header of 16 bytes: the time in nanoseconds since 1970 (u64), the length (u32), the
 * stream, and three zeros; little-endian. src/engines/microvm/output-log.ts reads them. A plain log has no headers.
 */
#ifndef SANDKEEP_LOG_H
#define SANDKEEP_LOG_H

#include "../common/text.h"

struct log {
  const char *name;
  const char *older;
  int is_plain;
  long limit; /* of one file, in bytes */
  int file;
  long size;
  long latest; /* the time of the latest piece */
};

/* Continues the log of the previous run, after its last whole piece. */
void open_log(struct log *log);

/* A full disk loses pieces, and never half of one. */
void write_log(struct log *log, u8 stream, const u8 *data, u32 n);

#endif
