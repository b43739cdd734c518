/*
 * A halt: the monitor has stopped the processors, and nobody asked for it.
 *
 * It does so where the disk of the machine is full. The write waits, and goes on once the processors run, so they are
 * told to run each second. It also does so at a fault of KVM or of its own. Then it refuses to let them run, and is
 * killed: the run would never end.
 */
#ifndef SANDKEEP_HALT_H
#define SANDKEEP_HALT_H

/* For clients that ask for something that needs the processors. */
#define HALTED "its processors have stopped; the disk of the machine may be full"

void begin_halt(void);
void end_halt(void);
int is_halted(void);

/* The monitor has refused. Nothing else is asked of it meanwhile. */
void take_refusal(void);

/* Each second. */
void check_halt(void);

#endif
