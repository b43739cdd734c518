/*
 * The users of commands, from /etc/passwd and /etc/group of the image. The sandbox writes both files: a pipe, a device
 * or a huge file in their place must do no harm. Only child processes read them.
 */
#ifndef SANDKEEP_USERS_H
#define SANDKEEP_USERS_H

#include "execute.h"

#define USER_GROUPS 64

typedef struct {
  u32 uid, gid;
  u32 groups[USER_GROUPS];
  int group_count;
  char name[256];
  char home[PATH_ROOM];
} User;

/* Reads `name`, `uid`, `name:group` or `uid:gid`. Returns 0, or a negative errno. */
long find_user(const char *text, User *user);

#endif
