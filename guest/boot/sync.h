/* Writes the changed files of the sandbox to its disk, by a process of its own: it may take minutes. */
#ifndef SANDKEEP_SYNC_H
#define SANDKEEP_SYNC_H

/* One that is in progress goes on. */
void begin_sync(void);

/* `process` has ended. Says `synced` if it was the one of the sync. Returns whether it was. */
int end_sync(long process);

#endif
