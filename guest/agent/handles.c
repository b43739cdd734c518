#include "handles.h"
#include "channels.h"

Handle handles[HANDLES];

void free_handles(void) {
  for (int i = 0; i < HANDLES; i++) handles[i].fd = -1;
}

long keep_handle(int fd, u32 owner, int is_directory) {
  int place = -1, owned = 0;
  for (int i = 0; i < HANDLES; i++) {
    if (handles[i].fd < 0) place = i;
    else if (handles[i].owner == owner) owned++;
  }
  if (place < 0 || owned >= OWNER_HANDLES) {
    call(__NR_close, fd, 0, 0, 0);
    return -EMFILE;
  }
  handles[place] = (Handle){fd, owner, is_directory};
  return place + 1;
}

Handle *find_handle(u32 number, u32 owner) {
  if (number == 0 || number > HANDLES) return 0;
  Handle *h = &handles[number - 1];
  return h->fd >= 0 && h->owner == owner ? h : 0;
}

void close_handles(u32 owner) {
  for (int i = 0; i < HANDLES; i++)
    if (handles[i].fd >= 0 && handles[i].owner == owner) close_fd(&handles[i].fd);
}
