/*
 * The entries of an archive (POSIX.1-2001, "pax"). A record before an entry has each value for which its header has no
 * room. Extended attributes are records with the name that GNU tar gives them.
 */
#ifndef SANDKEEP_TAR_H
#define SANDKEEP_TAR_H

#include "../common/text.h"
#include <linux/stat.h>

#define TAR_BLOCK 512

#define TAR_FILE '0'
#define TAR_HARD_LINK '1'
#define TAR_SYMBOLIC_LINK '2'
#define TAR_CHARACTER_DEVICE '3'
#define TAR_BLOCK_DEVICE '4'
#define TAR_DIRECTORY '5'
#define TAR_PIPE '6'

struct tar_entry {
  const char *name;
  const char *target; /* of a link; null: none */
  u8 kind;
  struct statx about;
};

/* Begins the records of an entry. */
void begin_records(void);

/* Adds a record. Returns whether there was room for it. */
int add_record(const char *key, const void *value, u64 n);

/* Adds the records of the values that are too large for the header of the entry. Returns whether there was room. */
int add_large_values(const struct tar_entry *entry);

/* Calls `put` with the records, if there are any, and the header. The content of the entry follows. */
void put_entry(const struct tar_entry *entry, void (*put)(const void *bytes, u64 n));

/* Calls `put` with the zeros behind a content of `n` bytes. */
void put_padding(u64 n, void (*put)(const void *bytes, u64 n));

#endif
