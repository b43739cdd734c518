/* The start of a program in the place of this one, and the code of its end. */
#ifndef SANDKEEP_EXECUTE_H
#define SANDKEEP_EXECUTE_H

#include "../protocol.h"

/* For an environment without PATH. */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PATH_ROOM (LIMIT_PATH + 1)

/* `name` ends with "=". Returns null when the environment lacks it. The last of several counts. */
const char *value_of(char **environment, const char *name);

/* Looks a name without a slash up in PATH. Returns only on failure, a negative errno. */
long execute(char **command, char **environment);

/* The exit code for a status of wait4. */
int exit_code(int status);

#endif
