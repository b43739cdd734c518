#include "channels.h"
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/time.h>
#include <linux/time_types.h>

Channel channels[CHANNELS];
int agent_pid;

Channel *find(u32 id) {
  for (int i = 0; i < CHANNELS; i++)
    if (channels[i].state != FREE && channels[i].id == id) return &channels[i];
  return 0;
}

/* As a table for all channels it would be 128 MiB. A small virtual machine does not promise that much to a program, and
   would refuse to start the agent. The kernel gives a page of it memory when input first reaches it. */
static u8 *map_input(void) {
  long mapped = call6(__NR_mmap, 0, STDIN_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped < 0 ? 0 : (u8 *)mapped;
}

Channel *make(u32 id) {
  if (find(id)) return 0;
  for (int i = 0; i < CHANNELS; i++) {
    if (channels[i].state != FREE) continue;
    u8 *input = map_input();
    if (!input) return 0;
    channels[i] = (Channel){.id = id, .in = -1, .out = -1, .err = -1, .report = -1, .input = input};
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
  if (c->input) call(__NR_munmap, c->input, STDIN_ROOM, 0, 0);
  c->input = 0;
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
