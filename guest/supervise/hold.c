#include "hold.h"
#include "clock.h"
#include "halt.h"
#include "memory.h"
#include "monitor.h"
#include "record.h"

#define SYNC_LIMIT (30 * SECOND)
#define ANSWER_ROOM 120

/* RESUMING: the monitor has not said yet that the processors run. */
enum { NOTHING, SYNCING, STOPPING, HELD, RESUMING };

static struct {
  int state;
  struct client *client;
  u64 connection;
  long deadline; /* of the sandbox, by the steady clock */
} hold;

static void say_unheld(struct client *client, const char *words) {
  char answer[ANSWER_ROOM];
  copy_text(answer, sizeof answer, "unheld ", 7);
  copy_text(answer + 7, sizeof answer - 7, words, length(words));
  answer_client(client, answer);
}

int is_held(void) { return hold.state != NOTHING; }

void begin_hold(struct client *client) {
  const char *refusal = 0;
  if (hold.state != NOTHING) return answer_client(client, "busy");
  if (is_saving()) refusal = "its memory is saved";
  else if (is_halted()) refusal = HALTED;
  else if (!record.ready || record.stopped || record.stop != STOP_NONE) refusal = "it starts or ends";
  if (refusal) return say_unheld(client, refusal);
  hold.state = SYNCING;
  hold.client = client;
  hold.connection = client->connection;
  hold.deadline = steady_clock() + SYNC_LIMIT;
  say_control("sync\n");
}

static void stop_processors(void) {
  hold.state = STOPPING;
  say_qmp("{\"execute\":\"stop\"}\n");
}

void take_synced(void) {
  if (hold.state == SYNCING) stop_processors();
}

int hold_stopped(void) {
  if (hold.state != STOPPING) return 0;
  hold.state = HELD;
  answer_client(hold.client, "held");
  return 1;
}

void hold_resumed(void) {
  if (hold.state == RESUMING) hold.state = NOTHING;
}

static int is_connected(void) { return hold.client->fd >= 0 && hold.client->connection == hold.connection; }

void end_hold(const char *words) {
  if (hold.state == NOTHING || hold.state == RESUMING) return;
  if (hold.state != SYNCING) say_qmp("{\"execute\":\"cont\"}\n");
  hold.state = hold.state == SYNCING ? NOTHING : RESUMING;
  if (is_connected()) say_unheld(hold.client, words);
}

void check_hold(void) {
  if (hold.state == NOTHING || hold.state == RESUMING) return;
  if (!is_connected()) return end_hold("");
  if (hold.state == SYNCING && steady_clock() >= hold.deadline) stop_processors();
}
