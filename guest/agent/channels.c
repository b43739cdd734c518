#include "channels.h"
#include <linux/prctl.h>
#include <linux/time.h>
#include <linux/time_types.h>

Channel channels[CHANNELS];
u8 inputs[CHANNELS][STDIN_ROOM];
int agent_pid;

Channel *find(u32 id) {
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state != FREE && channels[i].id == id) return &channels[i];
  return 0;
}

Channel *make(u32 id) {
  if (find(id)) return 0;
  for (int i = 0; i < CHANNELS; i++) {
    if (channels[i].state != FREE) continue;
    channels[i] = (Channel){.id = id, .in = -1, .out = -1, .err = -1, .report = -1, .input = inputs[i]};
    return &channels[i];
  }
  return 0;
}

void close_fd(int *fd) {
  if (*fd >= 0) call(__NR_close, *fd, 0, 0, 0);
  *fd = -1;
}

void forget(Channel *c) {
  /* One descriptor of a terminal or a connection: closed twice, the second time could hit another that got its
     number. */
  if (c->out == c->in) c->out = -1;
  close_fd(&c->in);
  close_fd(&c->out);
  close_fd(&c->err);
  close_fd(&c->report);
  c->state = FREE;
}

/* A start that has not made its group yet gets the signal alone. */
void kill_group(const Channel *c, int signal) {
  if (c->group <= 0) return;
  if (call(__NR_kill, -c->group, signal, 0, 0) == -ESRCH && c->pid > 0) call(__NR_kill, c->pid, signal, 0, 0);
}

void shut_down(int code) {
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state != FREE) kill_group(&channels[i], SIGKILL);
  leave(code);
}

long fork_process(void) { return call(__NR_clone, SIGCHLD, 0, 0, 0); }

void die_with_agent(void) {
  call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
  /* The agent may have ended before the call. */
  if (call(__NR_getppid, 0, 0, 0, 0) != agent_pid) leave(1);
}

u64 now(void) {
  struct __kernel_timespec time = {0, 0};
  call(__NR_clock_gettime, CLOCK_MONOTONIC, &time, 0, 0);
  return (u64)time.tv_sec * 1000 + (u64)time.tv_nsec / 1000000;
}
