import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';

/** For a loaded machine: the programs do not wait. */
const TIMEOUT_MS = 10_000;

export async function runs(program: string, version = '--version'): Promise<boolean> {
  return runWithInput(program, [version], '').then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
}

/** `descriptors`: the program has them from 3 on. Throws with the first line of its complaint. */
export async function runWithInput(
  program: string,
  args: string[],
  input: string,
  descriptors: readonly number[] = [],
): Promise<void> {
  const child = spawn(program, args, {
    stdio: ['pipe', 'ignore', 'pipe', ...descriptors],
    timeout: TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const ended = new Promise<string>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) =>
      resolve(code === 0 ? '' : `${program} ended with ${code ?? signal}`),
    );
  });
  // The error output of the program has the cause.
  child.stdin!.on('error', () => undefined);
  child.stdin!.end(input);
  const [failure, complaint] = await Promise.all([ended, text(child.stderr!)]);
  if (failure !== '') throw new Error(complaint.trim().split('\n')[0] || failure);
}
