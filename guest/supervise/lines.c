#include "lines.h"

void take_lines(struct lines *lines, const u8 *data, long n, void (*each)(char *line)) {
  for (long i = 0; i < n; i++) {
    if (data[i] != '\n') {
      if (lines->length == LONGEST_LINE) lines->is_skipping = 1;
      if (!lines->is_skipping) lines->text[lines->length++] = (char)data[i];
      continue;
    }
    lines->text[lines->length] = 0;
    if (!lines->is_skipping) each(lines->text);
    lines->length = 0;
    lines->is_skipping = 0;
  }
}

char *after(char *text, const char *prefix) {
  while (*prefix)
    if (*text++ != *prefix++) return 0;
  return text;
}

long take_number(char **text, long most) {
  char *at = *text;
  long number = 0;
  if (*at < '0' || *at > '9') return -1;
  for (; *at >= '0' && *at <= '9'; at++) {
    number = number * 10 + *at - '0';
    if (number > most) return -1;
  }
  if (*at == ' ') at++;
  else if (*at) return -1;
  *text = at;
  return number;
}
