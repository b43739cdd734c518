import { randomBytes } from 'node:crypto';
import { linkSync, renameSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import type { DataDirectory } from './directory.js';

/**
 * One process owns a data directory at a time. The owner listens on a unix socket in it, so ownership ends with the
 * process however it ends, is seen from every container that mounts the directory, and can tell who has it.
 */
export interface Ownership {
  release(): Promise<void>;
}

export interface Owner {
  pid: number;
  command: string;
}

/** Takes the directory, or says who has it. `command` is what others are told. */
export async function takeOwnership(directory: DataDirectory, command: string): Promise<Ownership | Owner> {
  // A socket cannot be bound over an existing path, and removing the path first would take it from a live owner. So it
  // is bound beside it and linked into place, which happens wholly or not at all.
  const own = join(directory.root, `.${randomBytes(6).toString('hex')}`);
  const greeting = JSON.stringify({ pid: process.pid, command } satisfies Owner);
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(greeting);
  });
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(own, resolve));
  server.unref();
  try {
    for (;;) {
      try {
        linkSync(own, directory.owner);
        return { release: () => release(server, directory) };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const found = inodeOf(directory.owner);
      const owner = await askOwner(directory);
      if (owner) {
        server.close();
        return owner;
      }
      if (found !== undefined) clearStale(directory, found);
    }
  } finally {
    rmSync(own, { force: true });
  }
}

/** Who owns the directory now, if anybody does. */
export async function askOwner(directory: DataDirectory): Promise<Owner | undefined> {
  const answer = await new Promise<string | undefined>((resolve) => {
    let text = '';
    const socket = connect(directory.owner);
    socket.setTimeout(2_000, () => socket.destroy());
    socket.on('data', (chunk) => (text += chunk.toString()));
    // A listener that does not answer in time is still a listener.
    socket.on('close', (failed) => resolve(failed ? undefined : text));
    socket.on('error', () => undefined);
  });
  if (answer === undefined) return undefined;
  try {
    return JSON.parse(answer) as Owner;
  } catch {
    return { pid: 0, command: 'unknown' };
  }
}

/**
 * Removes the socket of a dead owner, seen as inode `found`. Two processes may get here at once; renaming first shows
 * whether the path was still the dead one or already the other's new socket, which then goes back.
 */
function clearStale(directory: DataDirectory, found: number): void {
  const aside = join(directory.root, `.${randomBytes(6).toString('hex')}`);
  try {
    renameSync(directory.owner, aside);
    if (inodeOf(aside) !== found) linkSync(aside, directory.owner);
    rmSync(aside, { force: true });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'EEXIST') throw error;
  }
}

async function release(server: Server, directory: DataDirectory): Promise<void> {
  rmSync(directory.owner, { force: true });
  await new Promise((resolve) => server.close(resolve));
}

function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}
