#include "record.h"
#include <linux/fcntl.h>

#define FILE_ROOM 1024
#define STAT_ROOM 1024
/* The field of the start time, counted from the one after the name of the program. */
#define START_FIELD 20

struct record record;
static int changed = -1;
static int alive = -1;
static char boot_id[64];

static long read_file(const char *path, char *to, long room) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  long n = fd < 0 ? 0 : call(__NR_read, fd, to, room - 1, 0);
  if (fd >= 0) call(__NR_close, fd, 0, 0, 0);
  to[n < 0 ? 0 : n] = 0;
  return n;
}

void open_record(int changes) {
  changed = changes;
  long n = read_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
  if (n > 0 && boot_id[n - 1] == '\n') boot_id[n - 1] = 0;
  alive = (int)call(__NR_openat, AT_FDCWD, "alive", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

static char *put_text(char *to, const char *text) {
  while (*text) *to++ = *text++;
  return to;
}

static char *put_fact(char *to, const char *name, long value) {
  to = put_number(put_text(to, name), (u64)value);
  return to;
}

static char *put_time(char *to, const char *name, long nanos) {
  if (nanos == 0) return to;
  to = put_fact(to, name, nanos / 1000);
  *to++ = '\n';
  return to;
}

/* The name of a program may have spaces and brackets. */
static char *put_start_time(char *to, long pid) {
  char path[48];
  char stat[STAT_ROOM];
  *put_text(put_fact(path, "/proc/", pid), "/stat") = 0;
  long n = read_file(path, stat, sizeof stat);
  char *at = stat + (n > 0 ? n : 0);
  while (at > stat && *at != ')') at--;
  for (int field = 0; *at && field < START_FIELD; at++)
    if (*at == ' ') field++;
  while (*at >= '0' && *at <= '9') *to++ = *at++;
  return to;
}

static char *put_process(char *to, const char *name, long pid) {
  if (pid == 0) return to;
  to = put_fact(to, name, pid);
  *to++ = ' ';
  to = put_start_time(to, pid);
  *to++ = '\n';
  return to;
}

static char *put_word(char *to, const char *name, const char *word) {
  to = put_text(put_text(to, name), word);
  *to++ = '\n';
  return to;
}

long write_record(void) {
  static const char *stops[] = {"none", "asked", "forced"};
  static const char *shutdowns[] = {"none", "guest", "host"};
  char text[FILE_ROOM];
  char *end = put_process(text, "supervisor ", record.supervisor);
  /* A reaped process has no start time. */
  if (!record.ended) end = put_process(end, "monitor ", record.monitor);
  end = put_word(end, "boot ", boot_id);
  end = put_time(end, "started ", record.started);
  end = put_time(end, "ready ", record.ready);
  if (record.failed[0]) end = put_word(end, "failed ", record.failed);
  if (record.command.at) {
    end = put_fact(end, "command ", record.command.code);
    end = put_fact(end, " ", record.command.signal);
    end = put_fact(end, " ", record.command.oom);
    end = put_time(end, " ", record.command.at);
  }
  if (record.exit.is_said) {
    end = put_fact(put_fact(end, "exit ", record.exit.code), " ", record.exit.oom);
    *end++ = '\n';
  }
  if (record.ended) {
    end = put_time(end, "ended ", record.ended);
    end = put_text(put_fact(end, "status ", record.status), "\n");
    end = put_text(put_fact(end, "cpu ", record.cpu_micros), "\n");
    end = put_word(end, "stop ", stops[record.stop]);
    end = put_word(end, "shutdown ", shutdowns[record.shutdown]);
    if (record.saved) end = put_text(put_fact(end, "saved ", record.saved), "\n");
  }
  long fd = call(__NR_openat, AT_FDCWD, "record.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fd;
  long written = call(__NR_write, fd, text, end - text, 0);
  if (written == end - text) written = call(__NR_fdatasync, fd, 0, 0, 0);
  call(__NR_close, fd, 0, 0, 0);
  if (written < 0) return written;
  long failed = call6(__NR_renameat2, AT_FDCWD, (long)"record.new", AT_FDCWD, (long)"record", 0, 0);
  if (failed < 0) return failed;
  call(__NR_pwrite64, changed, "\n", 1, 0);
  return 0;
}

void touch_alive(void) { call(__NR_utimensat, alive, 0, 0, 0); }
