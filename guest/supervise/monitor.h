/*
 * The monitor: the program that is the machine of the sandbox. The sandbox may have taken it over, so it has a user of
 * its own and no right, and everything that it says is hostile.
 */
#ifndef SANDKEEP_MONITOR_H
#define SANDKEEP_MONITOR_H

#include "../common/kernel.h"

/* Its descriptors begin behind those that the service has opened for it, in this order. */
enum { QMP, CONTROL, OUTPUT, CONSOLE, STREAMS, AGENT = STREAMS, DESCRIPTORS };

struct monitor {
  long user;
  long group;
  long also_group; /* that of /dev/kvm; 0: none */
  long inherited;  /* the first descriptor behind those of the service */
  long file_mib;   /* the most of a file that it writes */
  char **command;
  int ends[STREAMS]; /* of the supervisor */
  int errors;        /* what it and the file servers write to their standard output and error output */
  int given_errors;  /* the end of theirs */
  long process;
};

extern struct monitor monitor;

/* Opens `path` for connections. Returns a negative errno on failure. */
long listen_at(const char *path, int queue);

/* Opens the pipe of `errors`. */
void open_errors(void);

/* Of this process and those that it starts. */
void write_oom_score(void);

/* Starts it with its processors stopped. Exits where that fails. */
void start_monitor(void);

void kill_monitor(void);

/* Says a command of QMP. */
void say_qmp(const char *command);

/* Says a line to the sandbox. */
void say_control(const char *words);

#endif
