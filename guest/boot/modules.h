/* The modules of the kernel. The initial file system has those that this machine may need, in /modules. */
#ifndef SANDKEEP_MODULES_H
#define SANDKEEP_MODULES_H

/* Loads those of every machine, in the order of the file /modules/base. */
void load_base_modules(void);

void load_module(const char *name);

/* Gives the memory of the files back. */
void remove_modules(void);

#endif
