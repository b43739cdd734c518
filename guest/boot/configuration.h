/*
 * The boot configuration: what the service wants of this machine. protocol.ts describes its records. The disk has it
 * from its first byte on. No process of the sandbox can change it while it is read: none runs yet.
 */
#ifndef SANDKEEP_CONFIGURATION_H
#define SANDKEEP_CONFIGURATION_H

#include "../protocol.h"
#include <linux/resource.h>

#define BOOT_PARTS 4096
#define BOOT_MODULES 64
#define BOOT_STORES 16

struct configuration {
  char *host_name; /* null: none, as the next ones */
  char *user;
  char *workdir;
  u8 *network;
  u8 *seed;
  u64 seed_bytes;
  int restricted;
  int is_copy; /* the disk has the files of another sandbox, and none of this one */
  int is_archive; /* see archive.h */
  int until_exit; /* an argument of process 1 */
  /* Both lists end with null. The program is no argument. */
  char *arguments[LIMIT_TEXTS + 1];
  char *environment[LIMIT_TEXTS + 2];
  u32 argument_count, variable_count;
  /* The program of the image that becomes process 1. Without a path there is none. */
  struct {
    char *path;
    int stop_signal; /* 0: that of the program */
    char *arguments[LIMIT_TEXTS + 2]; /* after the program */
    char *environment[LIMIT_TEXTS + 1];
    u32 argument_count, variable_count;
  } handoff;
  char *modules[BOOT_MODULES];
  int module_count;
  struct {
    u8 resource;
    struct rlimit64 value;
  } limits[LIMIT_RLIMITS];
  int limit_count;
  Reader files[BOOT_PARTS], mounts[BOOT_PARTS], patches[BOOT_PARTS];
  int file_count, mount_count, patch_count;
  /* Of the authorities to trust: their texts, and the name that those of the service have. No text: none. */
  Reader authorities;
  char *authority_name;
  char *bundles[BOOT_STORES];
  Reader anchors[BOOT_STORES], hashed, whole;
  int bundle_count, anchor_count;
};

extern struct configuration configuration;

/* Reads it from a disk, and gives up where it is incomplete. */
void read_configuration(const char *disk);

/* Gives the memory of the texts back: the sandbox has its own. */
void drop_configuration(void);

#endif
