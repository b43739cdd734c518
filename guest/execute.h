/* The start of a program in the place of this one, and the code of its end. */
#ifndef SANDKEEP_EXECUTE_H
#define SANDKEEP_EXECUTE_H

#include "kernel.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PATH_ROOM 4097

static const char *value_of(char **environment, const char *name) {
  u64 n = length(name);
  const char *found = 0;
  for (; *environment; environment++)
    if (same(*environment, name, n)) found = *environment + n;
  return found;
}

/* Looks a name without a slash up in PATH. Returns only on failure. */
static long execute(char **command, char **environment) {
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

/* The exit code for a status of wait4. */
static int exit_code(int status) {
  int signal = status & 0x7f;
  return signal ? 128 + signal : (status >> 8) & 0xff;
}

#endif
