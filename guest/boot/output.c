#include "output.h"
#include "../common/bytes.h"

#define STREAMS 2
#define HEADER 4
/* The driver takes a frame of this size whole, or not at all. */
#define FRAME (32 * 1024)

static struct {
  int port;
  int streams[STREAMS]; /* -1: it has ended */
  int turn;
  u8 frame[FRAME];
  u32 bytes;
} output;

void open_output(int port, const int streams[2]) {
  output.port = port;
  for (int i = 0; i < STREAMS; i++) output.streams[i] = streams[i];
}

static void read_stream(int i) {
  if (output.streams[i] < 0) return;
  long got = call(__NR_read, output.streams[i], output.frame + HEADER, FRAME - HEADER, 0);
  if (got == -EAGAIN || got == -EINTR) return;
  if (got <= 0) {
    call(__NR_close, output.streams[i], 0, 0, 0);
    output.streams[i] = -1;
    return;
  }
  output.frame[0] = (u8)(i + 1);
  output.frame[1] = 0;
  put(output.frame + 2, (u64)got, 2);
  output.bytes = HEADER + (u32)got;
}

int pump_output(void) {
  for (int i = 0; output.bytes == 0 && i < STREAMS; i++) {
    output.turn = !output.turn;
    read_stream(output.turn);
  }
  if (output.bytes == 0) return 0;
  long done = call(__NR_write, output.port, output.frame, output.bytes, 0);
  if (done <= 0) return 0;
  output.bytes = 0;
  return 1;
}

int is_output_empty(void) { return output.bytes == 0 && output.streams[0] < 0 && output.streams[1] < 0; }
