#include "output.h"

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
