/* The changes that the caller wants to the files of a new disk. */
#ifndef SANDKEEP_PATCHES_H
#define SANDKEEP_PATCHES_H

/*
 * Makes them below ROOT. Gives up at the first that fails, with its number and its reason. Paths and links are those of
 * the sandbox: a process with its root makes the changes. On a copy it renews /etc/machine-id first.
 */
void apply_patches(void);

#endif
