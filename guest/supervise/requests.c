#include "requests.h"
#include "../common/fail.h"
#include "monitor.h"
#include <linux/fcntl.h>

#define NONBLOCK 04000

struct client clients[CLIENTS];
int requests;

void open_requests(void) {
  for (int i = 0; i < CLIENTS; i++) clients[i].fd = -1;
  requests = (int)listen_at("supervisor.sock", CLIENTS);
  check("open the socket for the service", requests);
}

void admit_client(void) {
  long fd = call(__NR_accept4, requests, 0, 0, O_CLOEXEC | NONBLOCK);
  if (fd < 0) return;
  for (int i = 0; i < CLIENTS; i++) {
    if (clients[i].fd >= 0) continue;
    memset(&clients[i], 0, sizeof clients[i]);
    clients[i].fd = (int)fd;
    return;
  }
  call(__NR_close, fd, 0, 0, 0);
}

void answer_clients(const char *line) {
  for (int i = 0; i < CLIENTS; i++) {
    if (clients[i].fd < 0) continue;
    call(__NR_write, clients[i].fd, line, length(line), 0);
    call(__NR_write, clients[i].fd, "\n", 1, 0);
  }
}

void read_client(struct client *client, void (*each)(char *line)) {
  u8 data[256];
  long n = call(__NR_read, client->fd, data, sizeof data, 0);
  if (n == -EAGAIN || n == -EINTR) return;
  if (n > 0) {
    take_lines(&client->lines, data, n, each);
    return;
  }
  call(__NR_close, client->fd, 0, 0, 0);
  client->fd = -1;
}
