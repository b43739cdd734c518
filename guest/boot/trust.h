/*
 * The authorities that the programs of the sandbox trust besides those of its image: that of the gateway, and those of
 * the machine. They join the store of the image, whichever it has.
 */
#ifndef SANDKEEP_TRUST_H
#define SANDKEEP_TRUST_H

/*
 * In the root of the sandbox, with its mounts. Volumes are left out: they outlive the sandbox, and others may write
 * them meanwhile. The sandbox may have put anything at these paths. A store that cannot be changed stays as it is.
 */
void install_authorities(void);

#endif
