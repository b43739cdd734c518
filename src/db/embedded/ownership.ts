import { randomBytes } from 'node:crypto';
import { readdirSync, renameSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { sleep } from '../../lib/sleep.js';
import type { DataDirectory } from './directory.js';

/** One process owns a data directory at a time. */
export interface Ownership {
  release(): void;
}

export interface Owner {
  pid: number;
  command: string;
}

/**
 * A claim to the directory: a unix socket in it on which the claimant answers. So a claim ends with its process however
 * that ends, and is seen from every container that mounts the directory.
 */
interface Claim extends Owner {
  file: string;
  /** False while the claimant still looks whether there are others. */
  owns: boolean;
}

const PREFIX = 'owner.';
const ANSWER_TIMEOUT_MS = 2_000;
/** How long to leave the field to another, in milliseconds. */
const YIELD_MS = 20;

/**
 * Takes the directory, or says who has it. `command` is what others are told.
 *
 * Claim first, then look: whoever takes the directory has seen no other claim, and of any two claimants the later one
 * sees the earlier. A dead claim can be removed at any time, as its name is never used again.
 */
export async function takeOwnership(directory: DataDirectory, command: string): Promise<Ownership | Owner> {
  for (;;) {
    const { claim, withdraw } = await publishClaim(directory, command);
    try {
      for (;;) {
        const others = await liveClaims(directory, claim.file);
        const owner = others.find(({ owns }) => owns);
        if (owner) {
          withdraw();
          return owner;
        }
        if (others.length === 0) {
          claim.owns = true;
          return { release: withdraw };
        }
        // Of several that look at the same time, all but one step back.
        if (others.some(({ file }) => file < claim.file)) break;
        await sleep(YIELD_MS / 4);
      }
    } catch (error) {
      withdraw();
      throw error;
    }
    withdraw();
    await sleep(YIELD_MS);
  }
}

/** Who owns the directory now, if anybody does. */
export async function askOwner(directory: DataDirectory): Promise<Owner | undefined> {
  return (await liveClaims(directory)).find(({ owns }) => owns);
}

async function publishClaim(
  directory: DataDirectory,
  command: string,
): Promise<{ claim: Claim; withdraw: () => void }> {
  const file = `${PREFIX}${process.pid}.${randomBytes(3).toString('hex')}`;
  const claim: Claim = { file, pid: process.pid, command, owns: false };
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    // Not until the other side has hung up as well: one that hangs would keep us from ending.
    socket.end(JSON.stringify(claim), () => socket.destroy());
  });
  const path = join(directory.root, file);
  // A socket refuses connections until it is listened on: under its name it would pass for a dead one.
  const unready = join(directory.root, `.${file}`);
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(unready, resolve));
  server.unref();
  renameSync(unready, path);
  return {
    claim,
    withdraw: () => {
      rmSync(path, { force: true });
      server.close();
    },
  };
}

/** The claims whose claimants live, without `own`; those of the dead are removed. */
async function liveClaims(directory: DataDirectory, own?: string): Promise<Claim[]> {
  const files = readdirSync(directory.root).filter((file) => file.startsWith(PREFIX) && file !== own);
  const claims = await Promise.all(files.map((file) => ask(directory, file)));
  return claims.filter((claim) => claim !== undefined);
}

async function ask(directory: DataDirectory, file: string): Promise<Claim | undefined> {
  const path = join(directory.root, file);
  // A claimant that hangs is still one, and its name tells its number.
  const silent: Claim = { file, pid: Number(file.split('.')[1]), command: '(no answer)', owns: true };
  return new Promise((resolve) => {
    let text = '';
    const socket = connect(path);
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
    socket.on('data', (chunk) => (text += chunk.toString()));
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'ECONNREFUSED') rmSync(path, { force: true });
      resolve(code === 'ECONNREFUSED' || code === 'ENOENT' ? undefined : silent);
    });
    socket.on('close', () => resolve(parse(text) ?? silent));
  });
}

function parse(text: string): Claim | undefined {
  try {
    return JSON.parse(text) as Claim;
  } catch {
    return undefined;
  }
}
