#include "fail.h"

const char *program_name;

void fail(const char *what, long error) {
  char text[160];
  char *end = text;
  const char *parts[] = {program_name, ": cannot ", what, ": the kernel answers with the error "};
  for (int i = 0; i < 4; i++)
    for (const char *c = parts[i]; *c; c++) *end++ = *c;
  end = put_number(end, (u64)-error);
  *end++ = '\n';
  call(__NR_write, 2, text, end - text, 0);
  leave(EXIT_NOT_STARTED);
}

void check(const char *what, long result) {
  if (result < 0) fail(what, result);
}

long parse(const char *digits) {
  long number = 0;
  if (!*digits) fail("read the arguments", -EINVAL);
  for (; *digits; digits++) {
    if (*digits < '0' || *digits > '9' || number > 0xffffffffL) fail("read the arguments", -EINVAL);
    number = number * 10 + *digits - '0';
  }
  return number;
}
