/* The requests of the service to the supervisor, on a Unix socket that only the service reaches. */
#ifndef SANDKEEP_REQUESTS_H
#define SANDKEEP_REQUESTS_H

#include "lines.h"

#define CLIENTS 8

struct client {
  int fd; /* -1: free */
  u64 connection; /* its number */
  struct lines lines;
};

extern struct client clients[CLIENTS];
extern int requests; /* the listening socket */

void open_requests(void);

/* Takes a connection that waits. Where all places are taken, it ends at once. */
void admit_client(void);

/* Sends the line to one of them, or to all. */
void answer_client(struct client *client, const char *line);
void answer_clients(const char *line);

/* Reads what a client sent, and calls `each` with every line. */
void read_client(struct client *client, void (*each)(struct client *client, char *line));

#endif
