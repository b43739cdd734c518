import { execFile } from 'node:child_process';
import { accessSync, constants, readFileSync } from 'node:fs';
import { release } from 'node:os';
import { promisify } from 'node:util';

/**
 * The program that serves a directory to a virtual machine. There are two, of one name: one in C, which was a part of
 * QEMU until its version 8, and one in Rust. Distributions have either at either place.
 */
const PLACES = ['/usr/libexec/virtiofsd', '/usr/lib/virtiofsd', '/usr/lib/qemu/virtiofsd'];

export interface FileServer {
  program: string;
  version: string;
  isRust: boolean;
}

/** guest/supervise/shares.c makes its jail, and has the same two. */
const SOCKET = 3;
const DIRECTORY = '/tmp';

/** Its mounts are made by `mount_setattr`. */
const OLDEST_KERNEL = [5, 12] as const;

/** Undefined: none is installed. */
export async function findFileServer(): Promise<FileServer | undefined> {
  for (const program of PLACES) {
    try {
      accessSync(program, constants.X_OK);
      const { stdout, stderr } = await promisify(execFile)(program, ['--version'], { timeout: 30_000 });
      const [, inC, version] = /^virtiofsd (version )?(\d[\w.]*)/m.exec(`${stdout}${stderr}`) ?? [];
      if (version !== undefined) return { program, version, isRust: inC === undefined };
    } catch {
      // It is not there, or cannot run.
    }
  }
  return undefined;
}

const USER_NAMESPACES = '/proc/sys/user/max_user_namespaces';

/** Why no directory of the machine can be shared. Undefined: the file server can. */
export function explainNoSharing(server: FileServer | undefined): string | undefined {
  if (server === undefined) return 'virtiofsd is not installed';
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const [oldest, oldestMinor] = OLDEST_KERNEL;
  if (major < oldest || (major === oldest && minor < oldestMinor))
    return `the kernel of this machine is older than Linux ${OLDEST_KERNEL.join('.')}`;
  if (Number(readFileSync(USER_NAMESPACES, 'utf8')) > 0) return undefined;
  return 'the machine allows no user namespaces (sysctl user.max_user_namespaces)';
}

/**
 * The command of the file server. It is in the jail of the supervisor already. Its own sandbox changes the root to the
 * directory, and the jail has limited its open files.
 *
 * It opens a file when the sandbox names it, and not when the sandbox lists a directory (readdirplus): at the limit a
 * list would end early without an error. Locks of files hold within a sandbox: a server that waits for the lock of
 * another one would stop.
 */
export function fileServerCommand({ program, isRust }: FileServer): string[] {
  if (!isRust) {
    const options = ['sandbox=namespace', 'cache=auto', 'xattr', 'no_readdirplus', 'log_level=err'];
    return [
      program,
      '-f',
      `--fd=${SOCKET}`,
      '--rlimit-nofile=0',
      ...[`source=${DIRECTORY}`, ...options].flatMap((option) => ['-o', option]),
    ];
  }
  return [
    program,
    `--fd=${SOCKET}`,
    `--shared-dir=${DIRECTORY}`,
    '--rlimit-nofile=0',
    '--sandbox=namespace',
    '--seccomp=kill',
    '--cache=auto',
    '--xattr',
    '--no-readdirplus',
    // The other way opens files by a number, which leads to every file of the file system.
    '--inode-file-handles=never',
    '--log-level=error',
  ];
}
