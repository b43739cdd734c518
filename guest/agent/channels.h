/* The table of channels: the commands, file operations in the background, and connections that the agent has at
   work. */
#ifndef SANDKEEP_CHANNELS_H
#define SANDKEEP_CHANNELS_H

#include "tables.h"

enum State { FREE, STARTING, RUNNING, WORKING, CONNECTING, OPEN };

typedef struct {
  enum State state;
  u32 id;
  u32 owner; /* of a file operation */
  int pid;   /* 0 when it was reaped, or never was */
  int group; /* the process group, for signals */
  int status;
  long kills_before; /* for lack of memory */
  u8 oom;
  u64 exited_at; /* in milliseconds */
  u64 lingered;  /* bytes of output after the command ended */
  int tty;
  int in; /* -1 when closed; the same as `out` for terminals and connections */
  int out;
  int err;
  int report; /* the read end of the pipe by which a child tells its failure or its result (reports.h) */
  int ending; /* the input ends when its buffer is empty */
  int shut;   /* the input of a connection has ended */
  long credit;
  /* The input that waits is `count` bytes of `input` from `first` on, which begin again at the start of it. */
  u32 first, count;
  /* The bytes that were written and not acknowledged: several writes have one frame CONSUMED (streams.c). */
  u32 consumed;
  u8 *input; /* STDIN_ROOM bytes */
} Channel;

extern Channel channels[CHANNELS];

/* Returns null when there is none. */
Channel *find(u32 id);

/* Returns null when the table is full or has a channel of this number, or the machine has no memory. */
Channel *make(u32 id);

/* Closes what the channel has open, and frees its place. Its processes live on. */
void forget(Channel *c);

/* Closes a descriptor that is open, and sets it to -1. */
void close_fd(int *fd);

void kill_group(const Channel *c, int signal);

/* Ends the agent and its commands. */
__attribute__((noreturn)) void shut_down(int code);

long fork_process(void);

/* In a child: ends it with the agent, also when a signal that nobody can handle ends that. */
void die_with_agent(void);

/* Of a clock that never goes back, in milliseconds. */
u64 now(void);

/* The process of the agent, set at its start. */
extern int agent_pid;

#endif
