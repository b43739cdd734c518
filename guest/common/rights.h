/* The end of every right of a program that the service started. */
#ifndef SANDKEEP_RIGHTS_H
#define SANDKEEP_RIGHTS_H

#include "fail.h"

/*
 * Becomes the user without any right, and never gets one back. The program leaves no core dump, other processes of the
 * user cannot read it, and it dies with the process that started it. `also_group`: a further group; 0: none.
 */
void drop_rights(long user, long also_group);

#endif
