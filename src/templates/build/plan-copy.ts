import { posix } from 'node:path';
import type { ContextEntry } from '../context/entries.js';
import { DockerfileError } from '../dockerfile/error.js';
import type { InstructionOf } from '../dockerfile/instruction.js';
import { isPattern, makeMatcher } from '../dockerfile/patterns.js';

/** `to`: below the target. */
export interface CopyItem {
  entry: ContextEntry;
  to: string;
}

/** The sources of all instructions of a Dockerfile. Each source reads all entries. */
const MOST_SOURCES = 200;
const MOST_ITEMS = 100_000;
const ARCHIVE = /\.(?:tar|tgz|tbz2?|txz|gz|bz2|xz|zst)$/i;

/** `sources`, `target`: with their variables replaced. Throws DockerfileError. */
export async function planCopy(
  { line, keyword, sources, target }: InstructionOf<'copy'>,
  entries: ReadonlyMap<string, ContextEntry>,
  budget: { items: number; sources: number },
  pause: () => Promise<void>,
): Promise<{ items: CopyItem[]; intoDirectory: boolean }> {
  const refuse = (message: string): never => {
    throw new DockerfileError(line, `${keyword}: ${message}`);
  };
  if (entries.size === 0) refuse('there is no context: send it as an archive of tar');
  const found: ContextEntry[][] = [];
  for (const source of sources) {
    if ((budget.sources += 1) > MOST_SOURCES) refuse(`a Dockerfile has at most ${MOST_SOURCES} sources`);
    await pause();
    found.push(findSource(source, entries, refuse));
  }
  const roots = found.flat();
  const isFile = (entry: ContextEntry | undefined) => entry !== undefined && entry.type !== 'directory';
  const isOneFile = roots.length === 1 && isFile(roots[0]);
  const endsLikeDirectory = /(?:^|\/)\.{0,2}$/.test(target);
  if (roots.length > 1 && roots.some(isFile) && !endsLikeDirectory) {
    refuse('the destination of several sources ends with "/"');
  }
  const items: CopyItem[] = [];
  const add = (item: CopyItem) => {
    if ((budget.items += 1) > MOST_ITEMS) refuse(`a Dockerfile copies at most ${MOST_ITEMS} entries`);
    items.push(item);
  };
  for (const root of roots) {
    if (keyword === 'ADD' && isFile(root) && ARCHIVE.test(root.path)) {
      refuse(`"${root.path}" is an archive: use COPY, and unpack it with RUN`);
    }
    if (isFile(root)) {
      add({ entry: root, to: posix.basename(root.path) });
      continue;
    }
    await pause();
    const prefix = root.path === '' ? '' : `${root.path}/`;
    for (const entry of entries.values()) {
      if (entry.path.startsWith(prefix)) add({ entry, to: entry.path.slice(prefix.length) });
    }
  }
  return { items, intoDirectory: !isOneFile || endsLikeDirectory };
}

function findSource(
  source: string,
  entries: ReadonlyMap<string, ContextEntry>,
  refuse: (message: string) => never,
): ContextEntry[] {
  const path = posix.normalize(`/${source}`).replaceAll(/^\/|\/$/g, '');
  if (source.split('/').includes('..')) refuse(`"${source}" leads out of the context`);
  if (path === '') return [directory('')];
  if (!isPattern(path)) {
    const exact = entries.get(path);
    if (exact) return [exact];
    for (const one of entries.keys()) if (one.startsWith(`${path}/`)) return [directory(path)];
    return refuse(`"${source}" is not in the context`);
  }
  const matches = matcherOf(path, refuse);
  const found = [...entries.values()].filter((entry) => matches(entry.path));
  if (found.length === 0) refuse(`"${source}" matches nothing in the context`);
  return found.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

function matcherOf(pattern: string, refuse: (message: string) => never): (path: string) => boolean {
  try {
    return makeMatcher(pattern);
  } catch (error) {
    return refuse((error as Error).message);
  }
}

/** A directory without an entry of its own in the archive. */
function directory(path: string): ContextEntry {
  return { path, type: 'directory', mode: 0o755, size: 0, position: 0, content: '' };
}
