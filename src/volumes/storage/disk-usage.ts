import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { access } from 'node:fs/promises';

const ENVIRONMENT = { LC_ALL: 'C', PATH: '/usr/local/bin:/usr/bin:/bin' };
/** Of what du complains of: the end of a line, where the reason is. */
const KEPT = 200;

/**
 * KiB that a directory and all in it take on the disk, hard links once; undefined when it is not there. By du(1): guests may make
 * trees of any depth, and move parts of them meanwhile. It follows no symlinks and leaves the file system at no mount. Throws when
 * the signal aborts, and when part of it could not be read: du gives a sum without that part, which would be too small.
 */
export async function measure(directory: string, signal: AbortSignal): Promise<number | undefined> {
  const child = spawn('du', ['-skx', '--', directory], {
    ...{ signal, killSignal: 'SIGKILL', env: ENVIRONMENT },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  const complaint = watchComplaints(child.stderr);
  const [code] = (await once(child, 'close')) as [number | null];

  const kib = /^(\d+)\s/.exec(out)?.[1];
  if (kib !== undefined && complaint() === undefined) return Number(kib);
  if (kib === undefined && !(await exists(directory))) return undefined;
  throw new Error(`du ended with ${code ?? 'a signal'}: ${complaint() ?? 'no sum'}`);
}

/** Gives the first thing that is wrong, a file aside that went while it was looked at. However much there is, little of it is held. */
function watchComplaints(stderr: NodeJS.ReadableStream): () => string | undefined {
  let first: string | undefined;
  let line = '';
  stderr.setEncoding('utf8').on('data', (text: string) => {
    const [rest = '', ...begun] = text.split('\n');
    line = (line + rest).slice(-KEPT);
    for (const next of begun) {
      // Names are quoted, line breaks in them too: what a guest calls a file is never the end of a line.
      if (!line.endsWith(': No such file or directory')) first ??= line;
      line = next.slice(-KEPT);
    }
  });
  return () => first;
}

function exists(directory: string): Promise<boolean> {
  return access(directory).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
}
