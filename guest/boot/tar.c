#include "tar.h"

/* A name of a record, and the largest attribute of the kernel, several times. */
#define RECORDS_ROOM (512 * 1024)
#define NAME_BYTES 100
/* The largest numbers of fields with 8 and 12 bytes. */
#define MOST_SHORT 07777777UL
#define MOST_LONG 077777777777UL

struct header {
  char name[NAME_BYTES], mode[8], user[8], group[8], size[12], time[12], sum[8];
  u8 kind;
  char target[NAME_BYTES], magic[8], names[64], major[8], minor[8], rest[167];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is a block");

static u8 records[RECORDS_ROOM];
static u64 records_bytes;
static const u8 zeros[TAR_BLOCK];

void begin_records(void) { records_bytes = 0; }

static u64 digits_of(u64 value) {
  char digits[24];
  return (u64)(put_number(digits, value) - digits);
}

int add_record(const char *key, const void *value, u64 n) {
  /* Its length, which counts its own digits, then "key=value". */
  const u64 rest = 3 + length(key) + n;
  u64 whole = rest + digits_of(rest);
  whole = rest + digits_of(whole);
  if (whole > sizeof records - records_bytes) return 0;
  char *at = put_number((char *)records + records_bytes, whole);
  *at++ = ' ';
  memcpy(at, key, length(key));
  at += length(key);
  *at++ = '=';
  memcpy(at, value, n);
  at[n] = '\n';
  records_bytes += whole;
  return 1;
}

static int add_number(const char *key, u64 value) {
  char digits[24];
  return add_record(key, digits, (u64)(put_number(digits, value) - digits));
}

static int add_text(const char *key, const char *text) { return add_record(key, text, length(text)); }

static int has_long_time(const struct statx_timestamp *time) {
  return time->tv_nsec != 0 || time->tv_sec < 0 || (u64)time->tv_sec > MOST_LONG;
}

/* Seconds since 1970 with a fraction. That of a time before 1970 counts to the other side. */
static int add_time(const struct statx_timestamp *time) {
  char text[48], *at = text;
  i64 seconds = time->tv_sec;
  u32 nanos = time->tv_nsec;
  if (seconds < 0) {
    *at++ = '-';
    if (nanos > 0) seconds++, nanos = 1000000000 - nanos;
    seconds = -seconds;
  }
  at = put_number(at, (u64)seconds);
  if (nanos > 0) {
    *at++ = '.';
    for (u32 unit = 100000000; nanos > 0; nanos %= unit, unit /= 10) *at++ = (char)('0' + nanos / unit);
  }
  return add_record("mtime", text, (u64)(at - text));
}

int add_large_values(const struct tar_entry *entry) {
  const struct statx *about = &entry->about;
  int fits = 1;
  if (length(entry->name) > NAME_BYTES) fits &= add_text("path", entry->name);
  if (entry->target && length(entry->target) > NAME_BYTES) fits &= add_text("linkpath", entry->target);
  if (about->stx_uid > MOST_SHORT) fits &= add_number("uid", about->stx_uid);
  if (about->stx_gid > MOST_SHORT) fits &= add_number("gid", about->stx_gid);
  if (entry->kind == TAR_FILE && about->stx_size > MOST_LONG) fits &= add_number("size", about->stx_size);
  if (has_long_time(&about->stx_mtime)) fits &= add_time(&about->stx_mtime);
  return fits;
}

/* Octal digits and a NUL. */
static void put_octal(char *field, u64 room, u64 value) {
  for (u64 at = room - 1; at-- > 0; value >>= 3) field[at] = (char)('0' + (value & 7));
}

static u64 at_most(u64 value, u64 most) { return value > most ? most : value; }

static void put_header(const char *name, u8 kind, u64 size, const struct tar_entry *entry, void (*put)(const void *, u64)) {
  struct header header;
  memset(&header, 0, sizeof header);
  memcpy(header.name, name, at_most(length(name), NAME_BYTES));
  header.kind = kind;
  memcpy(header.magic, "ustar\0" "00", sizeof header.magic);
  put_octal(header.size, sizeof header.size, at_most(size, MOST_LONG));
  put_octal(header.mode, sizeof header.mode, entry ? entry->about.stx_mode & 07777 : 0644);
  put_octal(header.user, sizeof header.user, entry ? at_most(entry->about.stx_uid, MOST_SHORT) : 0);
  put_octal(header.group, sizeof header.group, entry ? at_most(entry->about.stx_gid, MOST_SHORT) : 0);
  const i64 seconds = entry ? entry->about.stx_mtime.tv_sec : 0;
  put_octal(header.time, sizeof header.time, seconds < 0 ? 0 : at_most((u64)seconds, MOST_LONG));
  if (entry && entry->target) memcpy(header.target, entry->target, at_most(length(entry->target), NAME_BYTES));
  if (kind == TAR_CHARACTER_DEVICE || kind == TAR_BLOCK_DEVICE) {
    put_octal(header.major, sizeof header.major, entry->about.stx_rdev_major);
    put_octal(header.minor, sizeof header.minor, entry->about.stx_rdev_minor);
  }
  /* The field counts as spaces in its own sum. */
  memset(header.sum, ' ', sizeof header.sum);
  u64 sum = 0;
  for (u64 i = 0; i < sizeof header; i++) sum += ((u8 *)&header)[i];
  put_octal(header.sum, sizeof header.sum - 1, sum);
  header.sum[sizeof header.sum - 2] = 0;
  put(&header, sizeof header);
}

void put_padding(u64 n, void (*put)(const void *bytes, u64 n)) {
  if (n % TAR_BLOCK > 0) put(zeros, TAR_BLOCK - n % TAR_BLOCK);
}

void put_entry(const struct tar_entry *entry, void (*put)(const void *bytes, u64 n)) {
  if (records_bytes > 0) {
    put_header("././@PaxHeader", 'x', records_bytes, 0, put);
    put(records, records_bytes);
    put_padding(records_bytes, put);
  }
  put_header(entry->name, entry->kind, entry->kind == TAR_FILE ? entry->about.stx_size : 0, entry, put);
}
