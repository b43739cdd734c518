#include "log.h"
#include "../common/bytes.h"
#include "clock.h"
#include <linux/fcntl.h>
#include <linux/uio.h>

#define HEADER 16
#define SEEK_END 2

void open_log(struct log *log) {
  log->file = (int)call(__NR_openat, AT_FDCWD, log->name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  log->size = call(__NR_lseek, log->file, 0, SEEK_END, 0);
}

void write_log(struct log *log, u8 stream, const u8 *data, u32 n) {
  u32 headed = log->is_plain ? 0 : HEADER;
  if (log->file >= 0 && log->size + headed + n > log->limit) {
    call6(__NR_renameat2, AT_FDCWD, (long)log->name, AT_FDCWD, (long)log->older, 0, 0);
    call(__NR_close, log->file, 0, 0, 0);
    open_log(log);
  }
  if (log->file < 0) return;
  /* A reader continues behind a time, so a clock that was set back must not hide the pieces that follow. */
  long time = wall_clock();
  if (time <= log->latest) time = log->latest + 1;
  log->latest = time;
  u8 header[HEADER] = {0};
  put(header, (u64)time, 8);
  put(header + 8, n, 4);
  header[12] = stream;
  struct iovec parts[] = {{header, headed}, {(void *)data, n}};
  long written = call(__NR_writev, log->file, parts, 2, 0);
  if (written == headed + n)
    log->size += written;
  else {
    call(__NR_ftruncate, log->file, log->size, 0, 0);
    call(__NR_lseek, log->file, log->size, 0, 0);
  }
}
