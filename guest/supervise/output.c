#include "output.h"
#include <linux/fcntl.h>

#define HEADER 4
#define LONGEST_FRAME 65535

static struct {
  u8 header[HEADER];
  u32 headed; /* bytes of the header that have arrived */
  u32 length;
  u32 filled;
  u8 data[LONGEST_FRAME];
  int is_broken;
} frame;

void take_output(struct log *log, const u8 *data, long n) {
  const u8 *end = data + n;
  while (data < end && !frame.is_broken) {
    if (frame.headed < HEADER) {
      frame.header[frame.headed++] = *data++;
      if (frame.headed < HEADER) continue;
      frame.length = (u32)frame.header[2] | (u32)frame.header[3] << 8;
      frame.filled = 0;
      u8 stream = frame.header[0];
      if ((stream != 1 && stream != 2) || frame.header[1] != 0 || frame.length == 0) frame.is_broken = 1;
      continue;
    }
    u32 taken = frame.length - frame.filled;
    if (taken > (u64)(end - data)) taken = (u32)(end - data);
    memcpy(frame.data + frame.filled, data, taken);
    frame.filled += taken;
    data += taken;
    if (frame.filled < frame.length) continue;
    write_log(log, frame.header[0], frame.data, frame.length);
    frame.headed = 0;
  }
}

void keep_frame(void) {
  if (frame.headed == 0 && !frame.is_broken) return;
  long file = call(__NR_openat, AT_FDCWD, "frame", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;
  call(__NR_write, file, &frame, sizeof frame, 0);
  call(__NR_close, file, 0, 0, 0);
}

void restore_frame(void) {
  long file = call(__NR_openat, AT_FDCWD, "../paused/frame", O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return;
  if (call(__NR_read, file, &frame, sizeof frame, 0) != sizeof frame) memset(&frame, 0, sizeof frame);
  call(__NR_close, file, 0, 0, 0);
}
