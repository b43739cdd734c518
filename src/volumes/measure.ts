import { execFile } from 'node:child_process';

/** Of one volume. What takes longer has no reading this time. */
const TIMEOUT_MS = 10 * 60_000;
const ENVIRONMENT = { LC_ALL: 'C', PATH: '/usr/local/bin:/usr/bin:/bin' };

/**
 * KiB that a directory and all in it take on the disk, hard links once; undefined when it is not there. By du(1): guests may make
 * trees of any depth, and move parts of them meanwhile. It follows no symlinks and leaves the file system at no mount.
 */
export async function measure(directory: string, signal: AbortSignal): Promise<number | undefined> {
  const { code, out, err } = await run('du', ['-skx', '--', directory], signal);
  // A file that went while it was looked at is told on standard error, and the sum is there all the same.
  const kib = /^(\d+)\s/.exec(out)?.[1];
  if (kib !== undefined) return Number(kib);
  if (/No such file or directory/.test(err)) return undefined;
  throw new Error(`du ended with ${code ?? 'a signal'}: ${err.slice(0, 200)}`);
}

function run(
  program: string,
  args: string[],
  signal: AbortSignal,
): Promise<{ code: number | null; out: string; err: string }> {
  return new Promise((resolve, reject) => {
    const options = { signal, timeout: TIMEOUT_MS, env: ENVIRONMENT };
    const child = execFile(program, args, options, (error, out, err) => {
      if (error && child.exitCode === null) reject(error);
      else resolve({ code: child.exitCode, out, err });
    });
  });
}
