/* Connections to the loopback addresses of the namespace that are being opened. */
#ifndef SANDKEEP_ATTEMPTS_H
#define SANDKEEP_ATTEMPTS_H

#include "answers.h"

/* A listener whose queue is full lets them wait. */
#define ATTEMPTS 1024
#define ATTEMPTS_OF_PORT 256

typedef struct {
  int fd; /* -1: the place is free */
  u32 id;
  u16 port;
  u8 family; /* 4 or 6; 0: a socket of process 1 */
  u64 deadline; /* nanoseconds of the monotonic clock */
} Attempt;

extern Attempt attempts[ATTEMPTS];

void free_attempts(void);

/* Opens a connection to 127.0.0.1, or to ::1 when nothing listens there. Port 0: to process 1, by one of its ways. */
void begin_attempt(u32 id, u16 port, u16 way);

/* The kernel has decided. */
void finish_attempt(Attempt *a);

/* Gives up those that have waited too long. */
void expire_attempts(void);

#endif
