/*
 * The way of the service into the sandbox, without the engine: an abstract socket in the network namespace. The service
 * connects to it by a program in that namespace (../connect), and process 1 starts an agent for each connection.
 */
#ifndef SANDKEEP_AGENTS_H
#define SANDKEEP_AGENTS_H

/* Returns the listening socket, or a negative errno. Before the first command, which could take the name. */
long listen_for_service(void);

/*
 * Starts an agent for each connection that waits. `environment`: of the agents. Returns the listener, or -1 when it is
 * closed: then the engine starts the agents.
 */
int admit_agents(int listener, char **environment);

/* Refuses every further connection. */
void refuse_agents(int listener);

#endif
