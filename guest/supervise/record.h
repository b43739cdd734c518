/*
 * The record of a run, for the service, which may be away. The file `record` has a line for each fact; a reader sees
 * the previous file or the whole new one. src/engines/microvm/record.ts parses it.
 *
 *   supervisor PID START      both processes, with the start times of /proc/PID/stat
 *   monitor PID START
 *   boot ID                   of the kernel of the machine
 *   started MICROS            the processors of the VM began to run
 *   failed WORDS              why the sandbox cannot start, in its own words
 *   ready MICROS              process 1 of the sandbox began its work
 *   command CODE SIGNAL OOM MICROS   the command has ended, and the run continues
 *   exit CODE OOM             said by process 1 before it powered off
 *   ended MICROS              the processors stopped
 *   status N                  of wait4 for the monitor
 *   cpu MICROS                of the monitor
 *   stop none|asked|forced
 *   shutdown none|guest|host
 *   saved BYTES               its memory, in the file `memory`: a later run continues it
 *
 * The sandbox chooses the figures of `command` and `exit`, and the words of `failed`. The supervisor takes every time.
 */
#ifndef SANDKEEP_RECORD_H
#define SANDKEEP_RECORD_H

#include "../common/text.h"

enum { STOP_NONE, STOP_ASKED, STOP_FORCED };
enum { SHUTDOWN_NONE, SHUTDOWN_GUEST, SHUTDOWN_HOST };

/* Times in nanoseconds since 1970; 0: not yet. */
struct record {
  long supervisor;
  long monitor;
  long started;
  long ready;
  char failed[121]; /* printable characters */
  struct {
    long at;
    int code;
    int signal;
    int oom;
  } command;
  struct {
    int is_said;
    int code;
    int oom;
  } exit;
  long saved; /* bytes; 0: it is not */
  long stopped; /* the processors, while the monitor may still write to the disk */
  long ended;
  int status;
  long cpu_micros;
  int stop;
  int shutdown;
};

extern struct record record;

/* `changes`: a file of the service, which gets a byte at each change. */
void open_record(int changes);

/* Writes the file anew, onto the disk. Returns a negative errno on failure. */
long write_record(void);

/* A sign of life: the time of the file `alive`. */
void touch_alive(void);

#endif
