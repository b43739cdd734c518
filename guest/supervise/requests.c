#include "requests.h"
#include "../common/fail.h"
#include "monitor.h"
#include <linux/fcntl.h>

#define NONBLOCK 04000

struct client clients[CLIENTS];
int requests;
static u64 connections;
static struct client *asking;
static void (*take)(struct client *client, char *line);

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
    clients[i].connection = ++connections;
    return;
  }
  call(__NR_close, fd, 0, 0, 0);
}

void answer_client(struct client *client, const char *line) {
  if (client->fd < 0) return;
  call(__NR_write, client->fd, line, length(line), 0);
  call(__NR_write, client->fd, "\n", 1, 0);
}

void answer_clients(const char *line) {
  for (int i = 0; i < CLIENTS; i++) answer_client(&clients[i], line);
}

static void take_line(char *line) { take(asking, line); }

void read_client(struct client *client, void (*each)(struct client *client, char *line)) {
  u8 data[256];
  long n = call(__NR_read, client->fd, data, sizeof data, 0);
  if (n == -EAGAIN || n == -EINTR) return;
  if (n > 0) {
    asking = client;
    take = each;
    take_lines(&client->lines, data, n, take_line);
    return;
  }
  call(__NR_close, client->fd, 0, 0, 0);
  client->fd = -1;
}
