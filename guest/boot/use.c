#include "use.h"
#include "files.h"

#define GROUP "/sys/fs/cgroup/sandbox/"
#define TEXT_ROOM 4096

/* The number after a name at the begin of a line. An empty name: the first number of the file. */
static u64 read_number(const char *path, const char *name) {
  char text[TEXT_ROOM];
  if (read_text(path, text, sizeof text) < 0) return 0;
  const u64 n = length(name);
  for (const char *line = text; *line;) {
    if (same(line, name, n)) {
      u64 number = 0;
      for (line += n; *line >= '0' && *line <= '9'; line++) number = number * 10 + (u64)(*line - '0');
      return number;
    }
    while (*line && *line++ != '\n') continue;
  }
  return 0;
}

struct use read_use(void) {
  const u64 memory = read_number(GROUP "memory.current", "");
  const u64 cache = read_number(GROUP "memory.stat", "inactive_file ");
  return (struct use){
    .processor_micros = read_number(GROUP "cpu.stat", "usage_usec "),
    .memory_bytes = memory > cache ? memory - cache : 0,
    .processes = read_number(GROUP "pids.current", ""),
  };
}

u64 count_oom_kills(void) { return read_number(GROUP "memory.events", "oom_kill "); }
