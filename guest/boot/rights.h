/* The rights of a sandbox with the profile `restricted`: it gets no capabilities, and no program gives it any. */
#ifndef SANDKEEP_BOOT_RIGHTS_H
#define SANDKEEP_BOOT_RIGHTS_H

/* Before the change of the user, which needs some. */
void forbid_rights(void);

/* After it: root would keep them. */
void drop_capabilities(void);

#endif
