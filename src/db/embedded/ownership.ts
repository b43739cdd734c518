import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { sleep } from '../../lib/sleep.js';
import type { DataDirectory } from './directory.js';
import { answers } from './postmaster.js';

/** One process owns a data directory at a time. */
export interface Ownership {
  release(): void;
}

export interface Owner {
  pid: number;
  command: string;
}

/**
 * A claim to the directory is a unix socket in it on which the claimant listens, `claim.<pid>.<random>`. So it ends with
 * its process however that ends, and is seen from every container that mounts the directory. Connecting is all there is
 * to it: that succeeds also while the claimant is busy, or hangs.
 */
const PREFIX = 'claim.';
/** How long to leave the field to another, and how long at most, in milliseconds. */
const YIELD_MS = 50;
const PATIENCE_MS = 15_000;

/**
 * Takes the directory, or says who has it. `command` is what others are told.
 *
 * Claim first, then look: whoever takes the directory has seen no other claim, and of any two claimants the later one
 * sees the earlier. A dead claim can be removed at any time, as its name is never used again.
 */
export async function takeOwnership(directory: DataDirectory, command: string): Promise<Ownership | Owner> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const { claim, withdraw } = await publishClaim(directory);
    try {
      for (;;) {
        const others = (await liveClaims(directory)).filter((other) => other !== claim);
        if (others.length === 0) {
          writeOwner(directory, { claim, command });
          return {
            release() {
              rmSync(directory.owner, { force: true });
              withdraw();
            },
          };
        }
        const owner = readOwner(directory, others);
        if (owner !== undefined || Date.now() > deadline) {
          withdraw();
          return owner ?? { pid: pidOf(others[0]!), command: 'unknown' };
        }
        // Of several that look at the same time, all but one step back.
        if (others.some((other) => other < claim)) break;
        await sleep(YIELD_MS / 2);
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
  return readOwner(directory, await liveClaims(directory));
}

async function publishClaim(directory: DataDirectory): Promise<{ claim: string; withdraw: () => void }> {
  const claim = `${PREFIX}${process.pid}.${randomBytes(3).toString('hex')}`;
  const server = createServer((socket) => socket.destroy());
  const path = join(directory.root, claim);
  // A socket refuses connections until it is listened on: under its name it would pass for a dead one.
  const unready = join(directory.root, `.${claim}`);
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

/** The claims whose claimants live; those of the dead are removed. */
async function liveClaims(directory: DataDirectory): Promise<string[]> {
  const claims = readdirSync(directory.root).filter((file) => file.startsWith(PREFIX));
  const live = await Promise.all(
    claims.map(async (claim) => {
      const path = join(directory.root, claim);
      if (await answers(path)) return claim;
      rmSync(path, { force: true });
      return undefined;
    }),
  );
  return live.filter((claim) => claim !== undefined);
}

/** Tells the others which of the claims has won. After a kill the file is void, as the claim is. */
function writeOwner(directory: DataDirectory, owner: { claim: string; command: string }): void {
  writeFileAtomicallySync(directory.owner, JSON.stringify(owner), { replace: true });
}

/** Which of these claims has won, if one has. */
function readOwner(directory: DataDirectory, claims: readonly string[]): Owner | undefined {
  try {
    const { claim, command } = JSON.parse(readFileSync(directory.owner, 'utf8')) as Record<string, string>;
    if (claim === undefined || command === undefined || !claims.includes(claim)) return undefined;
    return { pid: pidOf(claim), command };
  } catch {
    return undefined;
  }
}

function pidOf(claim: string): number {
  return Number(claim.split('.')[1]);
}
