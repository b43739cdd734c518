/* Resolves a name by the libc, connects, and prints the outcome: resolve <name> <port>. */
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <arpa/inet.h>

int main(int count, char **arguments) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  if (count != 3) return 2;
  int failure = getaddrinfo(arguments[1], arguments[2], &hints, &found);
  if (failure) {
    printf("unresolved: %s\n", gai_strerror(failure));
    return 1;
  }
  for (struct addrinfo *each = found; each; each = each->ai_next) {
    char text[64];
    getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST);
    int fd = socket(each->ai_family, each->ai_socktype, 0);
    if (connect(fd, each->ai_addr, each->ai_addrlen) == 0) {
      printf("connected: %s\n", text);
      return 0;
    }
    close(fd);
  }
  printf("unreachable\n");
  return 1;
}
