import { readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';
import { now, shortInstant, type Instant } from '../../lib/instant.js';
import { isUuid } from '../../lib/uuid.js';
import { baseCopiesIn, isArchived, segmentAfter, segmentsFrom, type StoredCopy } from './layout.js';

export interface Replay {
  root: string;
  base: StoredCopy;
  segments: string[];
  /** The first segment that is missing while later ones are there. */
  missing: string | undefined;
}

/**
 * Chooses the newest complete base copy that ended before `time`; without a time the newest one. Throws ExplainedError
 * when the archive has no log for that moment, as far as its names show.
 */
export function chooseReplay(path: string, time: Instant | undefined): Replay {
  if (time !== undefined && time > now()) {
    throw new ExplainedError(`${shortInstant(time)} is in the future: choose an earlier moment`);
  }
  const root = findRoot(resolve(path));
  const complete = baseCopiesIn(root).filter(({ lastSegment }) => isArchived(root, lastSegment));
  if (complete.length === 0)
    throw new ExplainedError(`${root} has no complete base copy: nothing can be restored from it`);
  const base = complete.findLast(({ endedAt }) => time === undefined || endedAt <= time);
  if (!base) {
    const { endedAt } = complete[0]!;
    throw new ExplainedError(
      `the archive begins at ${shortInstant(endedAt)}: choose that moment or a later one`,
    );
  }
  const { segments, missing } = withoutGap(segmentsFrom(root, base.firstSegment), base);
  const isNeeded = missing !== undefined && (time === undefined || missing <= base.lastSegment);
  if (isNeeded) throw missingSegment(root, missing);
  return { root, base, segments, missing };
}

export function missingSegment(root: string, segment: string): ExplainedError {
  return new ExplainedError(
    `the log segment ${segment} is missing in ${root}: put its file back, or choose a moment before it with --to-time`,
  );
}

function findRoot(path: string): string {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory())
    throw new ExplainedError(`${path} is not a directory: name the one of --wal-archive-dir`);
  if (baseCopiesIn(path).length > 0) return path;
  const found = readdirSync(path)
    .filter((name) => isUuid(name))
    .map((name) => ({ root: join(path, name), copies: baseCopiesIn(join(path, name)) }))
    .filter(({ copies }) => copies.length > 0)
    .toSorted((a, b) => (a.root < b.root ? -1 : 1));
  if (found.length === 1) return found[0]!.root;
  if (found.length === 0) throw new ExplainedError(`there is no archive with a base copy in ${path}`);
  const list = found.map(({ root, copies }) => `${root} (from ${shortInstant(copies[0]!.endedAt)})`);
  throw new ExplainedError(`${path} has several archives: name one of them: ${list.join(', ')}`);
}

function withoutGap(
  found: readonly string[],
  { firstSegment }: StoredCopy,
): Pick<Replay, 'segments' | 'missing'> {
  const segments: string[] = [];
  let next = firstSegment;
  for (const segment of found) {
    if (segment !== next) return { segments, missing: next };
    segments.push(segment);
    next = segmentAfter(next);
  }
  return { segments, missing: undefined };
}
