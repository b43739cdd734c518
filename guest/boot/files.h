/* Small files, directories and links of the machine. */
#ifndef SANDKEEP_FILES_H
#define SANDKEEP_FILES_H

#include "../common/text.h"

#define NAME_ROOM 256

/* Reads a small file as a text, without the line break at its end. Returns its length, or a negative errno. */
long read_text(const char *path, char *to, u64 room);

/* Writes a text to a file that exists. Returns a negative errno on failure. */
long write_text(const char *path, const char *text);

/* Joins texts to a path of at most `room` bytes. The last part is null. */
char *join(char *to, u64 room, ...);

/* Makes a directory and its parents. Returns a negative errno on failure; it is none that the directory exists. */
long make_directories(const char *path);

/* Makes the directories above a path. */
long make_parents(const char *path);

/* Writes a file, which is made if it is missing. Returns a negative errno on failure. */
long create_file(const char *path, u32 mode, const u8 *content, u64 n);

/*
 * Calls `visit` with each name of a directory, but the first two, until it returns another value than 0. Returns that
 * value, 0, or a negative errno.
 */
long each_entry(const char *path, long (*visit)(const char *name, void *context), void *context);

#endif
