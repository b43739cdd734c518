/* The agents: process 1 starts one for each connection of the service (service.h). */
#ifndef SANDKEEP_AGENTS_H
#define SANDKEEP_AGENTS_H

/* As in guest/connect. */
#define AGENTS "sandkeep-agent"

/*
 * Starts an agent for each connection that waits. `environment`: of the agents. Returns the listener, or -1 when it is
 * closed: then the engine starts the agents.
 */
int admit_agents(int listener, char **environment);

#endif
