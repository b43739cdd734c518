import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { ExplainedError } from '../../lib/explained-error.js';

export interface SeenTimeline {
  system: string;
  timeline: number;
}

const LINE = /^(\d{1,20}) (\d{1,10})\n$/;

/** Throws ExplainedError for a damaged file. Undefined: there is none. */
export function readSeenTimeline(file: string): SeenTimeline | undefined {
  if (!existsSync(file)) return undefined;
  const [, system, timeline] = LINE.exec(readFileSync(file, 'utf8')) ?? [];
  if (system === undefined) {
    throw new ExplainedError(
      `${file} is damaged: it has the last seen timeline of the database; check that the database URL names the present primary, then remove the file`,
    );
  }
  return { system, timeline: Number(timeline) };
}

/** Processes with one data directory share the file: of one cluster the latest timeline stays. */
export function writeSeenTimeline(file: string, seen: SeenTimeline): void {
  if (!existsSync(dirname(file))) return;
  const written = readSeenTimeline(file);
  if (written?.system === seen.system && written.timeline >= seen.timeline) return;
  writeFileAtomicallySync(file, `${seen.system} ${seen.timeline}\n`, { replace: true });
}
