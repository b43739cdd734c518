/*
 * The command of a sandbox that was started before anybody wanted it. The service hands it over on a socket
 * (service.h), with its environment, its working directory and the scripts of the sandbox.
 *
 * Process 1 takes one handover in its life. A service that was killed before it read the answer connects again, and
 * then learns that process 1 has one. So the command starts once, whatever ends the service meanwhile.
 */
#ifndef SANDKEEP_HANDOVER_H
#define SANDKEEP_HANDOVER_H

/* As in guest/connect. */
#define HANDOVERS "sandkeep-handover"

struct handover {
  char **command; /* null: none */
  char **environment;
  char *workdir; /* null: the command keeps that of process 1 */
  int until_exit;
};

/*
 * Serves the connections that wait. Returns 1 when process 1 has taken a handover: its scripts and its working
 * directory are made then, and `taken` has the rest. `environment`: that of process 1, which a handover extends.
 */
int admit_handover(int listener, char **environment, struct handover *taken);

#endif
