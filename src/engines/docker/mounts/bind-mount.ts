import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rename, rm, type FileHandle } from 'node:fs/promises';
import { promisify } from 'node:util';
import { mountsBelow } from '../../../lib/mount-table.js';

const run = promisify(execFile);

export interface MountFlags {
  readonly: boolean;
  noexec: boolean;
  nosuid: boolean;
  nodev: boolean;
}

/** Mounts a descriptor, so that no path leads to the source, and verifies the flags. */
export async function bindMount(source: FileHandle, target: string, flags: MountFlags): Promise<void> {
  const requested = flagWords(flags);
  const options = ['bind', ...requested].join(',');
  await mount(['--no-canonicalize', '-o', options, '/proc/self/fd/3', target], source.fd);
  const found = (await mountsBelow(target)).findLast(({ point }) => point === target);
  const missing = requested.filter((word) => found?.flags.includes(word) !== true);
  if (!found || missing.length > 0) {
    throw new Error(`mount(8) did not set the flags: ${missing.join(', ') || 'nothing is mounted'}`);
  }
}

function flagWords({ readonly, noexec, nosuid, nodev }: MountFlags): string[] {
  return [readonly && 'ro', noexec && 'noexec', nosuid && 'nosuid', nodev && 'nodev'].filter(
    (word) => word !== false,
  );
}

async function mount(args: readonly string[], fd: number): Promise<void> {
  const child = spawn('mount', args, { stdio: ['ignore', 'ignore', 'pipe', fd] });
  let errorOutput = '';
  child.stdio[2]?.on('data', (chunk: Buffer) => (errorOutput += String(chunk)));
  await new Promise<void>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new Error(errorOutput.trim() || `mount: ${code}`)),
    );
  });
}

export async function mountTmpfs(target: string): Promise<void> {
  await run('mount', ['--no-canonicalize', '-t', 'tmpfs', '-o', 'mode=755,nosuid,nodev', 'sandkeep', target]);
}

/** Hides all mounts by one rename: a late engine must not find an empty directory under a mount. Idempotent. */
export async function detachAndRemove(directory: string): Promise<void> {
  const hidden = `${directory}.gone-${randomUUID()}`;
  try {
    await rename(directory, hidden);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  for (;;) {
    const last = (await mountsBelow(hidden)).pop();
    if (!last) break;
    // Lazily: an engine that is copying the mount makes it busy.
    await run('umount', ['--no-canonicalize', '--lazy', last.point]);
  }
  await rm(hidden, { recursive: true });
}
