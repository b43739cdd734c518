#include "execute.h"

const char *value_of(char **environment, const char *name) {
  u64 n = length(name);
  const char *found = 0;
  for (; *environment; environment++)
    if (same(*environment, name, n)) found = *environment + n;
  return found;
}

long execute(char **command, char **environment) {
  const char *name = command[0];
  for (const char *c = name; *c; c++)
    if (*c == '/') return call(__NR_execve, name, command, environment, 0);
  const char *path = value_of(environment, "PATH=");
  if (!path) path = DEFAULT_PATH;
  long error = -ENOENT;
  char file[PATH_ROOM];
  while (*name) {
    u64 n = 0;
    while (*path && *path != ':' && n < PATH_ROOM - 2) file[n++] = *path++;
    while (*path && *path != ':') path++;
    if (n == 0) file[n++] = '.';
    file[n++] = '/';
    const char *c = name;
    while (*c && n < PATH_ROOM - 1) file[n++] = *c++;
    file[n] = 0;
    if (!*c) {
      long failed = call(__NR_execve, file, command, environment, 0);
      if (failed != -ENOENT && failed != -ENOTDIR) error = failed;
    }
    if (!*path++) break;
  }
  return error;
}

int exit_code(int status) {
  int signal = status & 0x7f;
  return signal ? 128 + signal : (status >> 8) & 0xff;
}
