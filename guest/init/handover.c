#include "handover.h"
#include "../protocol.h"
#include "service.h"
#include "workdir.h"
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/time_types.h>

#define SCRIPTS "/.sandkeep/scripts/"
#define PLACE (sizeof SCRIPTS - 1)
#define NAME_ROOM 256
#define LEVEL_SOCKET 1
#define RECEIVE_LIMIT 20 /* SO_RCVTIMEO */
#define NO_SIGNAL 0x4000 /* MSG_NOSIGNAL */
#define LONGEST_SECONDS 5
#define PAUSE_NANOSECONDS 20000000
#define LAST_ERRNO 4095

static int has_one;

static int read_all(int from, u8 *to, u64 n) {
  while (n > 0) {
    long got = call(__NR_read, from, to, n, 0);
    if (got <= 0) return 0;
    to += got;
    n -= (u64)got;
  }
  return 1;
}

static void complain(const char *script) {
  static const char words[] = "sandkeep: cannot write the script ";
  call(__NR_write, 2, words, sizeof words - 1, 0);
  call(__NR_write, 2, script, length(script), 0);
  call(__NR_write, 2, "\n", 1, 0);
}

static void write_script(const char *name, const u8 *text, u64 n) {
  static char path[PLACE + NAME_ROOM];
  copy_text(path, sizeof path, SCRIPTS, PLACE);
  copy_text(path + PLACE, NAME_ROOM, name, length(name));
  long file = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);
  if (file < 0) return complain(name);
  /* Whatever the umask is. */
  call(__NR_fchmod, file, 0755, 0, 0);
  while (n > 0) {
    long written = call(__NR_write, file, text, n, 0);
    if (written <= 0) {
      complain(name);
      break;
    }
    text += written;
    n -= (u64)written;
  }
  call(__NR_close, file, 0, 0, 0);
}

/* Passes over the scripts, or writes them. */
static void take_scripts(Reader *from, u32 count, int writes) {
  while (!from->bad && count-- > 0) {
    char *name = take_text(from);
    u64 n = take_script(from).size;
    if (n > (u64)(from->end - from->at)) from->bad = 1;
    if (from->bad) return;
    if (writes) write_script(name, from->at, n);
    from->at += n;
  }
}

/* NAME=value: whether one of `by` has the name. */
static int is_replaced(const char *entry, char **by) {
  u64 n = 0;
  while (entry[n] && entry[n] != '=') n++;
  for (; *by; by++)
    if (same(*by, entry, n) && (*by)[n] == '=') return 1;
  return 0;
}

/* `slots`: zeros, with room for each text and each variable of `environment`, and for the ends of two lists. */
static int parse(Reader *from, char **slots, char **environment, struct handover *to) {
  struct handover_layout head = take_handover(from);
  if (head.args + head.env > LIMIT_TEXTS) from->bad = 1;
  char *entered = take_text(from);
  to->until_exit = head.flags & HANDOVER_UNTIL_EXIT;
  to->workdir = entered[0] ? entered : 0;
  to->command = head.args > 0 ? slots : 0;
  for (u32 i = 0; !from->bad && i < head.args; i++) *slots++ = take_text(from);
  slots++;
  to->environment = slots;
  for (u32 i = 0; !from->bad && i < head.env; i++) *slots++ = take_text(from);
  /* A list ends with a zero at any moment. */
  for (; *environment; environment++)
    if (!is_replaced(*environment, to->environment)) *slots++ = *environment;
  /* Nothing is written before all is there. */
  Reader scripts = *from;
  take_scripts(&scripts, head.scripts, 0);
  if (scripts.bad) from->bad = 1;
  if (!from->bad) take_scripts(from, head.scripts, 1);
  return !from->bad;
}

/* Returns a REPLY. 0: the service has gone before it sent all. */
static u8 receive(int connection, char **environment, struct handover *taken) {
  u8 bytes[SIZE_BYTES];
  struct __kernel_old_timeval limit = {LONGEST_SECONDS, 0};
  call6(__NR_setsockopt, connection, LEVEL_SOCKET, RECEIVE_LIMIT, (long)&limit, sizeof limit, 0);
  if (!read_all(connection, bytes, sizeof bytes)) return 0;
  Reader from = {bytes, bytes + sizeof bytes, 0};
  u64 n = take_size(&from).bytes;
  if (n > LIMIT_HANDOVER) return REPLY_BAD;
  u64 variables = 0;
  while (environment[variables]) variables++;
  /* The pages that are not used take no memory. */
  u64 slots = (LIMIT_TEXTS + variables + 2) * sizeof(char *);
  long room = call6(__NR_mmap, 0, (long)(slots + n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room < 0 && room >= -LAST_ERRNO) return REPLY_BAD;
  u8 *texts = (u8 *)room + slots;
  from = (Reader){texts, texts + n, 0};
  u8 reply = 0;
  if (read_all(connection, texts, n)) {
    reply = has_one ? REPLY_HAS_ONE : REPLY_BAD;
    if (!has_one && parse(&from, (char **)room, environment, taken)) reply = REPLY_TAKEN;
  }
  if (reply != REPLY_TAKEN) {
    call(__NR_munmap, room, slots + n, 0, 0);
    return reply;
  }
  has_one = 1;
  workdir.path = taken->workdir;
  make_workdir();
  return reply;
}

int admit_handover(int listener, char **environment, struct handover *taken) {
  static const struct __kernel_timespec pause = {0, PAUSE_NANOSECONDS};
  /* Processes of the sandbox may connect without end, and process 1 has other work. */
  for (int i = 0; i < QUEUE; i++) {
    long connection = call(__NR_accept4, listener, 0, 0, O_CLOEXEC);
    if (connection == -EAGAIN) return 0;
    if (connection < 0) {
      /* The connection may stay in the queue. */
      call6(__NR_ppoll, 0, 0, (long)&pause, 0, 0, 0);
      return 0;
    }
    u8 reply = is_service(connection) ? receive(connection, environment, taken) : 0;
    if (reply) call6(__NR_sendto, connection, (long)&reply, 1, NO_SIGNAL, 0, 0);
    call(__NR_close, connection, 0, 0, 0);
    if (reply == REPLY_TAKEN) return 1;
  }
  return 0;
}
