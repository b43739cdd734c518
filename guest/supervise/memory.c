#include "memory.h"
#include "clock.h"
#include "lines.h"
#include "monitor.h"
#include "record.h"
#include "requests.h"
#include <linux/fcntl.h>
#include <linux/stat.h>
#include <linux/uio.h>

#define LONGEST (600 * SECOND)
#define SOCKET_LEVEL 1
#define SCM_RIGHTS 1
#define ANSWER_ROOM 240

/* The default of the monitor is 128 MiB for a second. */
#define TELL_EVENTS "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{\"capability\":\"events\",\"state\":true}]}}\n"
#define AT_ONCE "{\"execute\":\"migrate-set-parameters\",\"arguments\":{\"max-bandwidth\":1099511627776}}\n"

enum { NOTHING, STOPPING, WRITING, SAVED, READING };

long restored_from;

static struct {
  int state;
  int file;
  long most_bytes;
  long stopped;
  long deadline; /* by the steady clock */
} memory = {.file = -1};

int is_saving(void) { return memory.state == STOPPING || memory.state == WRITING; }

void begin_save(long most_bytes) {
  if (memory.state != NOTHING || !record.ready || record.stopped || record.stop != STOP_NONE) return;
  memory.state = STOPPING;
  memory.most_bytes = most_bytes;
  memory.deadline = steady_clock() + LONGEST;
  say_qmp("{\"execute\":\"stop\"}\n");
}

static void close_file(void) {
  if (memory.file >= 0) call(__NR_close, memory.file, 0, 0, 0);
  memory.file = -1;
}

void give_up_save(const char *words) {
  if (!is_saving()) return;
  if (memory.state == WRITING) say_qmp("{\"execute\":\"migrate_cancel\"}\n");
  close_file();
  call(__NR_unlinkat, AT_FDCWD, "memory", 0, 0);
  memory.state = NOTHING;
  say_qmp("{\"execute\":\"cont\"}\n");
  char answer[ANSWER_ROOM];
  copy_text(answer, sizeof answer, "unsaved ", 8);
  copy_text(answer + 8, sizeof answer - 8, words, length(words));
  answer_clients(answer);
}

/* The monitor has no path to the file. */
static long pass_file(void) {
  static char command[] = "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"memory\"}}\n";
  struct iovec part = {command, sizeof command - 1};
  struct {
    u64 length;
    int level, type, file, pad;
  } control = {20, SOCKET_LEVEL, SCM_RIGHTS, memory.file, 0};
  struct {
    void *name;
    u64 name_length;
    struct iovec *parts;
    u64 part_count;
    void *control;
    u64 control_length;
    u64 flags;
  } message = {0, 0, &part, 1, &control, sizeof control, 0};
  return call(__NR_sendmsg, monitor.ends[QMP], &message, 0, 0);
}

int take_stop(void) {
  if (memory.state != STOPPING) return 0;
  memory.stopped = wall_clock();
  memory.file = (int)call(__NR_openat, AT_FDCWD, "memory", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (memory.file < 0 || pass_file() < 0) {
    give_up_save("its file cannot be opened");
    return 1;
  }
  memory.state = WRITING;
  say_qmp(TELL_EVENTS AT_ONCE "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:memory\"}}\n");
  return 1;
}

static long size_of_file(void) {
  struct statx found;
  long failed = call6(__NR_statx, memory.file, (long)"", AT_EMPTY_PATH, STATX_SIZE, (long)&found, 0);
  return failed < 0 ? failed : (long)found.stx_size;
}

static long sync_file(const char *path) {
  long file = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return file;
  long failed = call(__NR_fsync, file, 0, 0, 0);
  call(__NR_close, file, 0, 0, 0);
  return failed;
}

static int complete_save(void) {
  long size = size_of_file();
  if (size <= 0 || size > memory.most_bytes) {
    give_up_save("its memory does not fit into its file");
    return 0;
  }
  /* The disk belongs to the memory. */
  if (call(__NR_fsync, memory.file, 0, 0, 0) < 0 || sync_file("../disk.qcow2") < 0 || sync_file(".") < 0) {
    give_up_save("the disk of the machine has no room, or fails");
    return 0;
  }
  close_file();
  memory.state = SAVED;
  record.saved = size;
  record.stopped = memory.stopped;
  record.shutdown = SHUTDOWN_HOST;
  return 1;
}

int begin_restore(void) {
  if (!restored_from) return 0;
  memory.state = READING;
  memory.deadline = steady_clock() + LONGEST;
  char command[96];
  const char *begin = "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:";
  copy_text(command, sizeof command, begin, length(begin));
  char *end = put_number(command + length(begin), (u64)restored_from);
  copy_text(end, 8, "\"}}\n", 4);
  say_qmp(TELL_EVENTS);
  say_qmp(command);
  return 1;
}

static void complete_restore(void) {
  memory.state = NOTHING;
  long failed = call(__NR_unlinkat, AT_FDCWD, "../paused/memory", 0, 0);
  if (failed < 0 || sync_file("../paused") < 0) return kill_monitor();
  say_qmp("{\"execute\":\"cont\"}\n");
}

static int has_status(const char *data, const char *status) {
  for (; *data; data++)
    if (same(data, status, length(status))) return 1;
  return 0;
}

int take_migration(const char *data) {
  if (has_status(data, "\"completed\"")) {
    if (memory.state == WRITING) return complete_save();
    if (memory.state == READING) complete_restore();
  } else if (has_status(data, "\"failed\"")) {
    if (memory.state == READING) kill_monitor();
    give_up_save("the monitor cannot write it");
  }
  return 0;
}

/* Its words are those of the monitor, as far as they are printable. */
void take_qmp_error(char *line) {
  if (memory.state == READING) return kill_monitor();
  if (!is_saving()) return;
  for (char *c = line; *c; c++) {
    if (*c < ' ' || *c > '~') *c = '?';
    if (c - line >= ANSWER_ROOM) *c = 0;
    if (!*c) break;
  }
  give_up_save(line);
}

void check_memory(void) {
  if (memory.state == NOTHING || memory.state == SAVED) return;
  if (memory.state == WRITING && size_of_file() > memory.most_bytes) return give_up_save("its memory does not fit into its file");
  if (steady_clock() < memory.deadline) return;
  if (memory.state == READING) kill_monitor();
  give_up_save("it takes too long");
}

void close_memory(void) {
  if (!is_saving()) return;
  close_file();
  call(__NR_unlinkat, AT_FDCWD, "memory", 0, 0);
}
