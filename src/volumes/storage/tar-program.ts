import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';

/**
 * GNU tar reads and writes a tree that others change, without following links, with holes, owners and extended
 * attributes.
 */

const ENVIRONMENT = { LC_ALL: 'C', PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin' };
const SHARED = ['--sparse', '--numeric-owner', '--xattrs', '--xattrs-include=*', '--quoting-style=escape'];
/** A file changed or disappeared while it was read. */
const CHANGED = 1;
const KEPT_LINES = 20;
const KEPT_CHARACTERS = 500;

/** Throws ExplainedError without GNU tar. */
export function requireTar(): void {
  const { stdout } = spawnSync('tar', ['--version'], { env: ENVIRONMENT, encoding: 'utf8' });
  if (stdout?.startsWith('tar (GNU tar)')) return;
  throw new ExplainedError(
    'GNU tar is needed for the data of volumes: install it ("apt-get install tar"), or leave them out with --without-volumes',
  );
}

export interface PackedTree {
  content: AsyncIterable<Buffer>;
  /** After the content: files that changed meanwhile. Throws ExplainedError when a file could not be read. */
  warnings: () => Promise<string[]>;
}

/** The tree `name` in `directory`, as the content of a tar archive. `leftOut`: patterns below it. */
export function packTree(directory: string, name: string, leftOut: readonly string[] = []): PackedTree {
  const child = spawn(
    'tar',
    [
      '--create',
      '--format=posix',
      '--one-file-system',
      '--anchored',
      ...leftOut.map((pattern) => `--exclude=${name}/${pattern}`),
      ...SHARED,
      '--file=-',
      `--directory=${directory}`,
      '--',
      name,
    ],
    {
      env: ENVIRONMENT,
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const ended = endOf(child);
  return {
    content: killedAfter(child, child.stdout),
    warnings: async () => {
      const { code, lines } = await ended;
      if (code === 0) return [];
      if (code === CHANGED) return lines;
      throw new ExplainedError(
        `the files in ${directory}/${name} cannot be read: ${faultIn(lines) ?? `tar ended with ${code}`}`,
      );
    },
  };
}

/**
 * Extracts the tree `name`, and nothing else of the content, into a directory that only this process uses. tar takes no
 * name out of the directory: it drops leading slashes, refuses "..", and creates links that could lead out after
 * everything else. It follows links that are there before, so the tree must not exist. Throws ExplainedError.
 */
export async function unpackTree(
  directory: string,
  name: string,
  content: AsyncIterable<Buffer>,
): Promise<void> {
  const tree = join(directory, name);
  if (lstatSync(tree, { throwIfNoEntry: false }))
    throw new ExplainedError(`${tree} cannot be restored: it exists`);
  const owners = process.getuid?.() === 0 ? ['--same-owner'] : ['--no-same-owner'];
  const options = ['--preserve-permissions', '--delay-directory-restore', ...owners];
  // Without the name, a changed archive could bring files beside the tree, such as keys or a configuration of the
  // service.
  const child = spawn(
    'tar',
    ['--extract', ...SHARED, ...options, '--file=-', `--directory=${directory}`, '--', name],
    {
      env: ENVIRONMENT,
      stdio: ['pipe', 'ignore', 'pipe'],
    },
  );
  const ended = endOf(child);
  // tar stops at the end of its archive. Unless it failed, the rest is read all the same: the parts that follow come
  // from one source.
  child.stdin.on('error', () => undefined);
  try {
    for await (const chunk of content) {
      if (child.exitCode || child.signalCode) break;
      await new Promise<void>((resolve) => child.stdin.write(chunk, () => resolve()));
    }
  } catch (cause) {
    child.kill('SIGKILL');
    await ended;
    throw cause;
  }
  child.stdin.end();
  const { code, lines } = await ended;
  if (code !== 0) {
    throw new ExplainedError(
      `the files of ${directory} cannot be restored: ${faultIn(lines) ?? `tar ended with ${code}`}`,
    );
  }
  // A link in the place of the tree would lead every later access elsewhere.
  if (!lstatSync(tree).isDirectory())
    throw new ExplainedError(`the files of ${directory} cannot be restored: "${name}" is no directory`);
}

/** Writes the file system of a directory to its disk. */
export async function syncFileSystem(directory: string): Promise<void> {
  const child = spawn('sync', ['--file-system', '--', directory], { env: ENVIRONMENT, stdio: 'ignore' });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0)
    throw new ExplainedError(`${directory} cannot be written to its disk: sync ended with ${code}`);
}

/** Notices about names have no colon. */
function faultIn(lines: readonly string[]): string | undefined {
  return lines.find((line) => line.includes(': '));
}

async function* killedAfter(child: ChildProcess, output: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  try {
    yield* output;
  } finally {
    // An abandoned reader leaves tar at a full pipe.
    if (child.exitCode === null && !child.stdout!.readableEnded) child.kill('SIGKILL');
  }
}

async function endOf(child: ChildProcess): Promise<{ code: number | null; lines: string[] }> {
  const lines: string[] = [];
  let open = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    const [rest = '', ...begun] = text.split('\n');
    open = (open + rest).slice(0, KEPT_CHARACTERS);
    for (const next of begun) {
      if (lines.length < KEPT_LINES) lines.push(open.replace(/^tar: /, ''));
      open = next.slice(0, KEPT_CHARACTERS);
    }
  });
  const failed = once(child, 'error').then(([error]) => {
    lines.unshift((error as Error).message);
    return [null] as [null];
  });
  const [code] = (await Promise.race([once(child, 'close'), failed])) as [number | null];
  return { code, lines };
}
