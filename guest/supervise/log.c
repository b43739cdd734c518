#include "log.h"
#include "../common/bytes.h"
#include "clock.h"
#include <linux/fcntl.h>
#include <linux/uio.h>

#define HEADER 16
#define SEEK_SET 0
#define SEEK_END 2
#define READ_AT_ONCE (64 * 1024)

/* Returns the size of the whole pieces at the start of the file. A power loss may leave half a piece, or zeros. */
static long whole_pieces(struct log *log, long size) {
  static u8 data[READ_AT_ONCE];
  long from = 0;
  long filled = 0;
  for (long at = 0;;) {
    if (at + HEADER > from + filled) {
      from = at;
      filled = call(__NR_pread64, log->file, data, sizeof data, from);
      if (filled < HEADER) return at;
    }
    Reader header = {data + (at - from), data + (at - from) + HEADER, 0};
    long time = (long)take(&header, 8);
    long n = (long)take(&header, 4);
    u64 stream = take(&header, 4);
    if (n == 0 || (stream != 1 && stream != 2) || at + HEADER + n > size) return at;
    if (time > log->latest) log->latest = time;
    at += HEADER + n;
  }
}

void open_log(struct log *log) {
  log->file = (int)call(__NR_openat, AT_FDCWD, log->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  log->size = call(__NR_lseek, log->file, 0, SEEK_END, 0);
  if (log->file < 0 || log->is_plain) return;
  log->size = whole_pieces(log, log->size);
  call(__NR_ftruncate, log->file, log->size, 0, 0);
  call(__NR_lseek, log->file, log->size, SEEK_SET, 0);
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
