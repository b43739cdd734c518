/*
 * The memory of the machine on the disk.
 *
 * A save stops the processors, and the monitor writes its state to the file `memory` of the run. Then it ends, and the
 * record says `saved`. Where that fails, the processors run on.
 *
 * A restore reads ../paused/memory at the start of a monitor. The file is removed before the processors run: a machine
 * that continued it twice would destroy the file systems of its disk.
 */
#ifndef SANDKEEP_MEMORY_H
#define SANDKEEP_MEMORY_H

#include "../common/kernel.h"

/* The descriptor of ../paused/memory in the monitor. 0: this run restores nothing. */
extern long restored_from;

/* Saves the memory, if the sandbox is ready and nothing else is under way. A larger file is given up. */
void begin_save(long most_bytes);

int is_saving(void);

/* The processors run on, and the service gets the reason. */
void give_up_save(const char *words);

/* Tells the monitor what to restore. Returns whether there is anything. */
int begin_restore(void);

/* Events of the monitor. `take_stop` returns whether a save asked for it, `take_migration` whether one is complete. */
int take_stop(void);
int take_migration(const char *data);
void take_qmp_error(char *line);

/* Gives up what takes too long. */
void check_memory(void);

/* The monitor has ended. */
void close_memory(void);

#endif
