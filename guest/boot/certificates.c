#include "certificates.h"
#include "../common/text.h"
#include "configuration.h"

#define BEGIN "-----BEGIN "
#define END "-----END "
#define TRUSTED "TRUSTED "
#define CERTIFICATE "CERTIFICATE-----"
#define MOST_ADDED 1000
/* An authority of the service has less. */
#define LARGEST_OWN 4096

struct block {
  const u8 *start, *body, *body_end, *end;
  u64 hash; /* of the body without spaces, which two texts of one certificate share */
};

static struct block added[MOST_ADDED];
static int added_count;

int same_bytes(const u8 *one, const u8 *other, u64 n) {
  for (u64 i = 0; i < n; i++)
    if (one[i] != other[i]) return 0;
  return 1;
}

/* The place behind the text, or null. */
static const u8 *behind(const u8 *at, const u8 *end, const char *text) {
  const u64 n = length(text);
  return (u64)(end - at) >= n && same_bytes(at, (const u8 *)text, n) ? at + n : 0;
}

static int is_space(u8 c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Of a digit of base64. Below 0: it is none. */
static int value_of_digit(u8 c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static const u8 *behind_label(const u8 *at, const u8 *end, const char *begin) {
  if (!(at = behind(at, end, begin))) return 0;
  const u8 *trusted = behind(at, end, TRUSTED);
  return behind(trusted ? trusted : at, end, CERTIFICATE);
}

static int read_block(const u8 *at, const u8 *end, struct block *block) {
  block->start = at;
  if (!(at = behind_label(at, end, BEGIN))) return 0;
  block->body = at;
  block->hash = 0xcbf29ce484222325u;
  for (; at < end && (is_space(*at) || *at == '=' || value_of_digit(*at) >= 0); at++)
    if (!is_space(*at)) block->hash = (block->hash ^ *at) * 0x100000001b3u;
  block->body_end = at;
  if (!(at = behind_label(at, end, END))) return 0;
  block->end = at < end && *at == '\n' ? at + 1 : at;
  return 1;
}

/* The next certificate from `at` on. 0: there is none. */
static int next_block(const u8 *at, const u8 *end, struct block *block) {
  for (; at < end; at++)
    if (*at == '-' && read_block(at, end, block)) return 1;
  return 0;
}

void read_added(void) {
  const Reader from = configuration.authorities;
  const u8 *at = from.at;
  for (added_count = 0; added_count < MOST_ADDED && next_block(at, from.end, &added[added_count]); added_count++)
    at = added[added_count].end;
}

/* -1: it is none of them. */
static int place_in_added(const struct block *block) {
  for (int i = 0; i < added_count; i++)
    if (added[i].hash == block->hash) return i;
  return -1;
}

/* Every installation has the same text in the names of its authorities, also of earlier ones. */
static int is_of_service(const struct block *block) {
  static u8 decoded[LARGEST_OWN];
  const u64 name = length(configuration.authority_name);
  u64 n = 0;
  u32 bits = 0;
  int count = 0;
  for (const u8 *at = block->body; at < block->body_end; at++) {
    const int digit = value_of_digit(*at);
    if (digit < 0) continue;
    bits = bits << 6 | (u32)digit;
    if ((count += 6) < 8) continue;
    count -= 8;
    if (n == sizeof decoded) return 0;
    decoded[n++] = (u8)(bits >> count);
  }
  for (u64 i = 0; i + name <= n; i++)
    if (same_bytes(decoded + i, (const u8 *)configuration.authority_name, name)) return 1;
  return 0;
}

static u8 *append(u8 *to, const u8 *from, const u8 *end) {
  memcpy(to, from, (u64)(end - from));
  return to + (end - from);
}

u64 with_authorities(u8 *to, const u8 *bundle, u64 n) {
  static u8 is_present[MOST_ADDED];
  const u8 *const begin = to, *at = bundle, *end = bundle + n;
  struct block block;
  memset(is_present, 0, sizeof is_present);
  while (next_block(at, end, &block)) {
    const int place = place_in_added(&block);
    if (place >= 0) is_present[place] = 1;
    to = append(to, at, place < 0 && is_of_service(&block) ? block.start : block.end);
    at = block.end;
  }
  to = append(to, at, end);
  for (int i = 0; i < added_count; i++) {
    if (is_present[i]) continue;
    if (to > begin && to[-1] != '\n') *to++ = '\n';
    to = append(to, added[i].start, added[i].end);
  }
  return (u64)(to - begin);
}
