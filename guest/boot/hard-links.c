#include "hard-links.h"
#include "failure.h"
#include <linux/mman.h>

#define FIRST_ROOM 4096

/* The sandbox decides how many files have several names, so these grow. Without memory the machine gives up. */
static struct {
  struct noted {
    struct file_identity file;
    u64 name; /* its place in the names, and 1; 0: free */
  } *files; /* a hash table, of which a quarter is free */
  u64 file_room, file_count;
  char *names;
  u64 name_room, name_bytes;
} noted;

static void *map_memory(u64 n) {
  return (void *)need(call6(__NR_mmap, 0, (long)n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "map memory", 0);
}

static u64 place_of(struct file_identity file) {
  u64 hash = (file.inode ^ file.device << 40) * 0x9e3779b97f4a7c15UL;
  u64 at = (hash ^ hash >> 32) % noted.file_room;
  for (;; at = (at + 1) % noted.file_room) {
    const struct noted *found = &noted.files[at];
    if (!found->name || (found->file.inode == file.inode && found->file.device == file.device)) return at;
  }
}

static void grow_files(void) {
  struct noted *earlier = noted.files;
  const u64 room = noted.file_room;
  noted.file_room = room ? 2 * room : FIRST_ROOM;
  noted.files = map_memory(noted.file_room * sizeof *noted.files);
  for (u64 i = 0; i < room; i++)
    if (earlier[i].name) noted.files[place_of(earlier[i].file)] = earlier[i];
  if (earlier) call(__NR_munmap, earlier, room * sizeof *earlier, 0, 0);
}

static void grow_names(u64 needed) {
  u64 room = noted.name_room ? noted.name_room : FIRST_ROOM;
  while (room < needed) room *= 2;
  if (room == noted.name_room) return;
  char *names = map_memory(room);
  memcpy(names, noted.names, noted.name_bytes);
  if (noted.names) call(__NR_munmap, noted.names, noted.name_room, 0, 0);
  noted.names = names;
  noted.name_room = room;
}

const char *note_name(struct file_identity file, const char *name) {
  if (noted.file_count >= noted.file_room / 4 * 3) grow_files();
  struct noted *found = &noted.files[place_of(file)];
  if (found->name) return noted.names + found->name - 1;
  const u64 n = length(name) + 1;
  grow_names(noted.name_bytes + n);
  memcpy(noted.names + noted.name_bytes, name, n);
  *found = (struct noted){file, noted.name_bytes + 1};
  noted.name_bytes += n;
  noted.file_count++;
  return 0;
}
