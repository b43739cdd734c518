/*
 * A hold: the processors stand still while the service copies the disk, so that no write is missing in the middle. It
 * lasts as long as the connection of the client that asked for it: a service that is killed holds nothing up.
 *
 * The sandbox writes its changed files to the disk first, for a limited time: it may be hostile. Then the processors
 * stop, and the monitor writes what it holds of the disk before it says so.
 */
#ifndef SANDKEEP_HOLD_H
#define SANDKEEP_HOLD_H

#include "requests.h"

/* The answer is `held`, `busy` during another hold, or `unheld WORDS` where the processors run on. */
void begin_hold(struct client *client);

/* Whether a hold is in progress. */
int is_held(void);

/* The sandbox has written its files. */
void take_synced(void);

/* The events STOP and RESUME of the monitor. `hold_stopped` returns whether the hold asked for it. */
int hold_stopped(void);
void hold_resumed(void);

/* Ends the wait for the sandbox after its limit, and a hold whose client has gone. */
void check_hold(void);

/* The processors run on, and the client gets the line `unheld WORDS`. */
void end_hold(const char *words);

#endif
