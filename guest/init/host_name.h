/*
 * The host name of the sandbox. A network that was prepared before the sandbox existed gives it another one, and the
 * service sets the right one as soon as the container runs. The command must see only that.
 */
#ifndef SANDKEEP_HOST_NAME_H
#define SANDKEEP_HOST_NAME_H

/* Whether the command may start: the sandbox has this name, or the service has not set it for HOST_NAME_LIMIT. */
int has_host_name(const char *name);

#endif
