/* Lines of text from a descriptor whose other end is hostile: a longer line is skipped to its end. */
#ifndef SANDKEEP_LINES_H
#define SANDKEEP_LINES_H

#include "../common/text.h"

/* A line of QMP with an event is shorter. */
#define LONGEST_LINE 1024

struct lines {
  char text[LONGEST_LINE + 1];
  u32 length;
  u8 is_skipping;
};

/* Calls `each` with every whole line, which ends with NUL and has no line break. */
void take_lines(struct lines *lines, const u8 *data, long n, void (*each)(char *line));

/* Returns the text after `prefix`, or null when `text` starts differently. */
char *after(char *text, const char *prefix);

/* The number at `*text`, which moves behind it and a space. -1: there is none, or it exceeds `most`. */
long take_number(char **text, long most);

#endif
