/*
 * The files of the sandbox as an archive, in a machine that runs no program of it.
 *
 * A hostile sandbox wrote the file systems, so neither the service nor the kernel of its machine reads them. This
 * machine does, and sends the archive through the port of the agent: pieces with their lengths in 4 bytes, and a length
 * of 0 at the end. It turns itself off when the service has left.
 */
#ifndef SANDKEEP_ARCHIVE_H
#define SANDKEEP_ARCHIVE_H

/* Sends the files below ROOT, and turns the machine off. */
__attribute__((noreturn)) void send_archive(void);

#endif
