import { posix } from 'node:path';
import type { ContextEntry } from '../context/entries.js';
import { isArchive } from '../dockerfile/archive.js';
import { DockerfileError } from '../dockerfile/error.js';
import type { InstructionOf } from '../dockerfile/instruction.js';
import { isPattern, makeMatcher } from '../dockerfile/patterns.js';
import { inTurns, type Turn } from './turns.js';

/** `to`: below the target. */
export interface CopyItem {
  entry: ContextEntry;
  to: string;
}

/** The sources of all instructions of a Dockerfile. Each source reads all entries. */
const MOST_SOURCES = 200;
const MOST_ITEMS = 100_000;

/** Where the sources are, for messages. */
interface Place {
  name: string;
  advice: string;
}
const CONTEXT: Place = { name: 'the context', advice: 'check the path and .dockerignore' };

/** `sources`, `target`: with their variables replaced. Throws DockerfileError. */
export async function planCopy(
  { line, keyword, sources, target }: Pick<InstructionOf<'copy'>, 'line' | 'keyword' | 'sources' | 'target'>,
  entries: ReadonlyMap<string, ContextEntry>,
  budget: { items: number; sources: number },
  turn: Turn,
  place: Place = CONTEXT,
): Promise<{ items: CopyItem[]; intoDirectory: boolean }> {
  const refuse = (message: string): never => {
    throw new DockerfileError(line, `${keyword}: ${message}`);
  };
  if (entries.size === 0) refuse('there is no context: send it as an archive of tar');
  const found: ContextEntry[][] = [];
  for (const source of sources) {
    if ((budget.sources += 1) > MOST_SOURCES)
      refuse(`a Dockerfile has at most ${MOST_SOURCES} sources: copy directories`);
    found.push(await findSource(source, entries, place, turn, refuse));
  }
  const roots = found.flat();
  const isOneFile = roots.length === 1 && roots.every(isFile);
  const endsLikeDirectory = /(?:^|\/)\.{0,2}$/.test(target);
  if (roots.length > 1 && roots.some(isFile) && !endsLikeDirectory) {
    refuse('the destination of several sources ends with "/"');
  }
  const archive = roots.find((root) => keyword === 'ADD' && isFile(root) && isArchive(root.path));
  if (archive) refuse(`"${archive.path}" is an archive: use COPY, and unpack it with RUN`);
  const count = () => {
    if ((budget.items += 1) > MOST_ITEMS)
      refuse(`a Dockerfile copies at most ${MOST_ITEMS} entries: copy each of them once`);
  };
  // A directory that is named twice is copied once.
  const contents = new Map<string, CopyItem[]>();
  for (const root of roots) if (!isFile(root)) contents.set(root.path, []);
  if (contents.size > 0) {
    await inTurns(entries.values(), turn, (entry) => {
      for (const [above, to] of placesOf(entry.path)) {
        const items = contents.get(above);
        // The destination keeps its own mode.
        if (!items || to === '') continue;
        count();
        items.push({ entry, to });
      }
    });
  }
  const items: CopyItem[] = [];
  await inTurns(roots, turn, (root) => {
    if (isFile(root)) {
      count();
      items.push({ entry: root, to: posix.basename(root.path) });
      return;
    }
    for (const item of contents.get(root.path) ?? []) items.push(item);
    contents.delete(root.path);
  });
  return { items, intoDirectory: !isOneFile || endsLikeDirectory };
}

function isFile({ type }: ContextEntry): boolean {
  return type !== 'directory';
}

/** Each directory above a path, and the path from there. */
function* placesOf(path: string): Iterable<[above: string, to: string]> {
  yield ['', path];
  for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1)) {
    yield [path.slice(0, at), path.slice(at + 1)];
  }
}

async function findSource(
  source: string,
  entries: ReadonlyMap<string, ContextEntry>,
  { name, advice }: Place,
  turn: Turn,
  refuse: (message: string) => never,
): Promise<ContextEntry[]> {
  const path = posix.normalize(`/${source}`).replaceAll(/^\/|\/$/g, '');
  if (source.split('/').includes('..')) refuse(`"${source}" leads out of ${name}`);
  if (path === '') return [directory('')];
  if (!isPattern(path)) {
    const exact = entries.get(path);
    if (exact) return [exact];
    const prefix = `${path}/`;
    let isThere = false;
    await inTurns(entries.keys(), turn, (one) => (isThere ||= one.startsWith(prefix)));
    return isThere ? [directory(path)] : refuse(`"${source}" is not in ${name}: ${advice}`);
  }
  const matches = matcherOf(path, refuse);
  const found: ContextEntry[] = [];
  await inTurns(entries.values(), turn, (entry) => {
    if (matches(entry.path)) found.push(entry);
  });
  if (found.length === 0) refuse(`"${source}" matches nothing in ${name}: ${advice}`);
  return turn(() => found.toSorted((a, b) => (a.path < b.path ? -1 : 1)));
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
