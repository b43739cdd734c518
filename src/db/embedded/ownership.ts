import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { sleep } from '../../lib/sleep.js';
import type { DataDirectory } from './directory.js';
import { answers } from './postmaster.js';

export interface Ownership {
  release(): void;
}

export interface Owner {
  pid: number;
  command: string;
}

/**
 * A claim is a listening unix socket, `claim.<pid>.<random>`. It ends with its process, however that ends, and
 * containers that share the directory see it. Connecting succeeds while the process is busy or hangs.
 */
const PREFIX = 'claim.';
const YIELD_MS = 50;
const PATIENCE_MS = 15_000;

/**
 * Takes the directory, or returns its owner. `command`: for the errors of other processes.
 * A process publishes its claim before it reads other claims, so of two processes the later one sees the earlier. The
 * names of dead claims are never used again, so anyone may remove them.
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
        // The lowest name of concurrent claimants stays.
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

export async function askOwner(directory: DataDirectory): Promise<Owner | undefined> {
  return readOwner(directory, await liveClaims(directory));
}

async function publishClaim(directory: DataDirectory): Promise<{ claim: string; withdraw: () => void }> {
  const claim = `${PREFIX}${process.pid}.${randomBytes(3).toString('hex')}`;
  const server = createServer((socket) => socket.destroy());
  const path = join(directory.root, claim);
  // A socket refuses connections before `listen` returns, like a dead claim. It gets its name afterwards.
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

/** Removes the claims of dead processes. */
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

/** The file is void without its claim, so a killed owner leaves nothing behind. */
function writeOwner(directory: DataDirectory, owner: { claim: string; command: string }): void {
  writeFileAtomicallySync(directory.owner, JSON.stringify(owner), { replace: true });
}

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
