import { chmodSync, lstatSync, renameSync, unlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { ExplainedError } from '../lib/explained-error.js';

/** The length of `sun_path` without its end: of Linux 107, of macOS 103. */
const LONGEST_PATH = 103;

/**
 * The file of a Unix socket. The service listens at `ownPath`; the file gets its mode there, and then its name. So
 * nobody connects before the mode holds.
 */
export class UnixSocket {
  readonly ownPath: string;
  private ino: number | undefined;

  private constructor(
    readonly path: string,
    private readonly mode: number,
  ) {
    this.ownPath = `${path}.${process.pid}`;
  }

  /** Removes the socket of a process that has ended. Throws ExplainedError when another process listens there. */
  static async claim(path: string, mode: number): Promise<UnixSocket> {
    const socket = new UnixSocket(path, mode);
    if (Buffer.byteLength(socket.ownPath) > LONGEST_PATH) {
      throw new ExplainedError(
        `the path ${path} is too long for a socket: choose one of at most ${LONGEST_PATH - 11} bytes`,
      );
    }
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found && !found.isSocket()) {
      throw new ExplainedError(`${path} exists and is no socket: remove it, or choose another --listen-unix`);
    }
    if (found && (await isServed(path))) {
      throw new ExplainedError(
        `another process listens on ${path}: stop it, or choose another --listen-unix`,
      );
    }
    removeFile(socket.ownPath);
    return socket;
  }

  publish(): void {
    chmodSync(this.ownPath, this.mode);
    this.ino = lstatSync(this.ownPath).ino;
    renameSync(this.ownPath, this.path);
  }

  /** Another process may have taken the path since. */
  remove(): void {
    if (lstatSync(this.path, { throwIfNoEntry: false })?.ino === this.ino) removeFile(this.path);
  }
}

/** Anything but a refusal is a process, which may be busy. */
async function isServed(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT'),
    );
  });
}

function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
