/*
 * The directories and files of the machine that the sandbox mounts. A file server (virtiofsd) for each answers the
 * requests of the sandbox. The sandbox may have taken it over, so it is in a jail:
 *
 *   - a mount namespace whose root it changes to the directory, or to one that has the file alone. The mount has
 *     nosuid, nodev, noexec, and the flag for reading only where the sandbox may not write
 *   - a user namespace with every number, so that files have the owners that the sandbox gives them. Its capabilities
 *     are for files of these owners, and for nothing of the machine
 *   - process, network, IPC and host name namespaces, which are empty
 *   - no new privileges, and the filter of system calls that virtiofsd has
 *
 * It is in the control groups of the supervisor, and dies with it. The end of one ends the machine: a sandbox would
 * wait for it for ever.
 */
#ifndef SANDKEEP_SHARES_H
#define SANDKEEP_SHARES_H

#include "../common/kernel.h"

#define SHARES 16
/* Its words, and the end. */
#define SERVER_WORDS 32

struct shares {
  /* The command of each file server. It serves SHARED_DIRECTORY to the socket that it has as SERVED_SOCKET. */
  char *command[SERVER_WORDS + 1];
  int words;
  struct share {
    /* A descriptor of the directory or the file. Once the file server runs, it is the connection to it. */
    long fd;
    int is_readonly;
    long process;
  } each[SHARES];
  int count;
};

extern struct shares shares;

/* `errors` takes what they write. Exits where one cannot be started. */
void start_file_servers(long errors);

/* Whether one of them has ended. */
int has_file_server_ended(void);

/* Kills them, and waits until no process of them is left. */
void end_file_servers(void);

#endif
