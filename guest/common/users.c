#include "users.h"
#include <linux/fcntl.h>

/* The processes that read it are children: their parents never touch these pages. */
static u8 database[1 << 20];

/* Reads a whole file, as far as there is room. Returns its length, 0 when there is none. */
static u64 slurp(const char *path) {
  long fd = call(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (fd < 0) return 0;
  u64 n = 0;
  long got;
  while (n < sizeof database && (got = call(__NR_read, fd, database + n, sizeof database - n, 0)) > 0) n += got;
  call(__NR_close, fd, 0, 0, 0);
  return n;
}

static int number_of(const char *text, u64 n, u32 *value) {
  u64 sum = 0;
  if (n == 0 || n > 10) return 0;
  for (u64 i = 0; i < n; i++) {
    if (text[i] < '0' || text[i] > '9') return 0;
    sum = sum * 10 + (u64)(text[i] - '0');
  }
  if (sum > 0xfffffffe) return 0;
  *value = (u32)sum;
  return 1;
}

/* The field of a line that colons separate. */
static char *field(char *line, char *end, int index, u64 *n) {
  char *start = line;
  for (; index > 0 && start < end; start++)
    if (*start == ':') index--;
  if (index > 0) {
    *n = 0;
    return end;
  }
  char *stop = start;
  while (stop < end && *stop != ':') stop++;
  *n = (u64)(stop - start);
  return start;
}

long find_user(const char *text, User *user) {
  u64 n = 0;
  while (text[n] && text[n] != ':') n++;
  const char *group = text[n] ? text + n + 1 : 0;
  int known = number_of(text, n, &user->uid);
  int numeric = known;
  user->gid = 0;
  user->group_count = 0;
  user->name[0] = 0;
  copy_text(user->home, sizeof user->home, "/", 1);
  u64 size = slurp("/etc/passwd");
  char *line = (char *)database, *all = line + size;
  while (line < all) {
    char *end = line;
    while (end < all && *end != '\n') end++;
    u64 name_n, uid_n, gid_n, home_n;
    char *name = field(line, end, 0, &name_n), *uid = field(line, end, 2, &uid_n);
    char *gid = field(line, end, 3, &gid_n), *home = field(line, end, 5, &home_n);
    u32 uid_value, gid_value;
    if (number_of(uid, uid_n, &uid_value) && number_of(gid, gid_n, &gid_value)) {
      int match = numeric ? uid_value == user->uid : name_n == n && same(name, text, n);
      if (match) {
        user->uid = uid_value;
        user->gid = gid_value;
        copy_text(user->name, sizeof user->name, name, name_n);
        if (home_n > 0) copy_text(user->home, sizeof user->home, home, home_n);
        known = 1;
        break;
      }
    }
    line = end + 1;
  }
  /* Images without /etc/passwd have a root too. */
  if (!known && n == 4 && same(text, "root", 4)) {
    user->uid = 0;
    copy_text(user->home, sizeof user->home, "/root", 5);
    known = 1;
  }
  if (!known) return -ENOENT;
  u64 group_n = group ? length(group) : 0;
  int group_known = group ? number_of(group, group_n, &user->gid) : 1;
  u64 name_n = length(user->name);
  size = slurp("/etc/group");
  line = (char *)database, all = line + size;
  while (line < all) {
    char *end = line;
    while (end < all && *end != '\n') end++;
    u64 own_n, gid_n, members_n;
    char *own = field(line, end, 0, &own_n), *gid = field(line, end, 2, &gid_n);
    char *members = field(line, end, 3, &members_n);
    u32 value;
    if (number_of(gid, gid_n, &value)) {
      if (!group_known && own_n == group_n && same(own, group, own_n)) {
        user->gid = value;
        group_known = 1;
      }
      char *member = members, *members_end = members + members_n;
      while (!group && name_n > 0 && member < members_end) {
        char *stop = member;
        while (stop < members_end && *stop != ',') stop++;
        if ((u64)(stop - member) == name_n && same(member, user->name, name_n) && user->group_count < USER_GROUPS)
          user->groups[user->group_count++] = value;
        member = stop + 1;
      }
    }
    line = end + 1;
  }
  if (!group_known && group_n == 4 && same(group, "root", 4)) {
    user->gid = 0;
    group_known = 1;
  }
  return group_known ? 0 : -ENOENT;
}
