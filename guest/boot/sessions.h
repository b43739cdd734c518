/*
 * The port of the agent. A client of the service and an agent in the sandbox get each other's bytes; HANDSHAKE of
 * protocol.ts begins a session, and ends an earlier one. Process 1 of the sandbox starts the agents (../init/agents.h).
 *
 * Only whole frames with the mark of the session go to the agent. So a client that was killed in the middle of a frame
 * makes no other frame of it, and the next client cannot complete it. `hello` is recognized as the last bytes that have
 * arrived: its client sends nothing more before the answer.
 *
 * When the agent ends, the client gets `refusal` and the key behind its last bytes.
 */
#ifndef SANDKEEP_SESSIONS_H
#define SANDKEEP_SESSIONS_H

/* `port`: of the agent. `events`: of epoll, which tells of changes only. */
void open_sessions(int port, int events);

/* Passes on so much as both sides take. Returns whether something was done. */
int pump_sessions(void);

/* A client waits for process 1, which does not listen yet: sessions want to be pumped again soon. */
int is_session_waiting(void);

/* Process 1 has ended: every session is refused from now on. */
void refuse_sessions(void);

#endif
