import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { FileHandle } from 'node:fs/promises';

/** A service may have a PATH without the directories of system programs. */
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const KEPT_CHARACTERS = 2_000;

export interface ProgramOptions {
  lock?: FileHandle;
  timeoutMs: number;
  /** Exit codes of a success. */
  ok?: readonly number[];
  /** Kills the program. */
  signal?: AbortSignal | undefined;
}

/**
 * Runs a program of the system. It inherits the lock as descriptor 3, so that the lock outlives a service that is
 * killed meanwhile. Throws with the program's own words.
 */
export async function runProgram(
  name: string,
  args: readonly string[],
  { lock, timeoutMs, ok = [0], signal }: ProgramOptions,
): Promise<void> {
  const child = spawn(name, args, {
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    env: { LC_ALL: 'C', PATH },
    stdio: ['ignore', 'ignore', 'pipe', lock?.fd ?? 'ignore'],
  });
  let said = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, KEPT_CHARACTERS);
  });
  // `spawn` has such an option, which does not wait for the end of the program.
  const kill = () => child.kill('SIGKILL');
  signal?.addEventListener('abort', kill, { once: true });
  if (signal?.aborted === true) kill();
  const [code, killedBy] = (await once(child, 'close').finally(() =>
    signal?.removeEventListener('abort', kill),
  )) as [number | null, string | null];
  if (code !== null && ok.includes(code)) return;
  const reason = said.trim().replaceAll(/\s+/g, ' ') || `it ended with ${killedBy ?? `the code ${code}`}`;
  throw new Error(reason.startsWith(`${name}:`) ? reason : `${name}: ${reason}`);
}
