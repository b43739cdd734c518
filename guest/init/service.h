/*
 * The way of the service into the sandbox, without the engine: abstract sockets in the network namespace. The service
 * connects to them by a program in that namespace (../connect).
 */
#ifndef SANDKEEP_SERVICE_H
#define SANDKEEP_SERVICE_H

#define QUEUE 16

/* The sockets that listen. Negative: none. */
struct ways {
  int agents;
  int handovers;
};

/* Refuses every further connection. */
void close_ways(struct ways *ways);

/* Returns a socket that listens at `name`, or a negative errno. Before the first command, which could take the name. */
long listen_for_service(const char *name);

/* Returns it: another process has made the socket, which listens. */
long take_listener(int listener);

/* Whether the service is at the other end of the connection. */
int is_service(int connection);

#endif
