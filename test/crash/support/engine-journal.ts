import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A run as the engine recorded it. Times in microseconds since 1970. */
export interface RecordedRun {
  orgId: string;
  sandboxId: string;
  runId: string;
  startedAt: bigint;
  stoppedAt: bigint | null;
  /** It has the command of its create, which came after its start. */
  hasHandover: boolean;
}

export interface Journal {
  /** Every run that has started, by its id, in the order of the starts. */
  runs: Map<string, RecordedRun>;
  /** The present holdings: each sandbox and its last run. */
  held: Map<string, { runId: string; running: boolean }>;
  /** Faults within the record itself. */
  wrong: string[];
  /** The text of the record, to detect a change. */
  text: string;
}

interface Line {
  orgId: string;
  sandboxId: string;
  runId: string;
  state: 'prepared' | 'running' | 'exited';
  startedAt: string | null;
  finishedAt: string | null;
  hasHandover?: true;
  removed?: true;
}

/** Reads the complete record of a simulated engine with code of its own. */
export function readJournal(directory: string): Journal {
  const text = readSimulated(directory);
  const journal: Journal = { runs: new Map(), held: new Map(), wrong: [], text };
  for (const line of text.split('\n')) {
    const entry = parse(line);
    if (entry) follow(journal, entry);
  }
  return journal;
}

/** The path of the valid record of a simulated engine; undefined when there is none yet. */
export function recordOf(directory: string): string | undefined {
  const number = (name: string) => Number(/^simulated\.(\d+)\.ndjson$/.exec(name)?.[1] ?? -1);
  const latest = readdirSync(directory)
    .filter((name) => number(name) > 0)
    .toSorted((a, b) => number(a) - number(b))
    .at(-1);
  return latest === undefined ? undefined : join(directory, latest);
}

/** The text of the record of a simulated engine; empty when there is none yet. */
export function readSimulated(directory: string): string {
  for (;;) {
    const path = recordOf(directory);
    if (path === undefined) return '';
    try {
      return readFileSync(path, 'utf8');
    } catch (error) {
      // Another process has taken over since the path was read.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

/** RFC 3339 in UTC with up to six digits of fraction, as microseconds since 1970. */
export function micros(text: string): bigint {
  const [, seconds, fraction = ''] = /^(.{19})(?:\.(\d{1,6}))?Z$/.exec(text)!;
  return BigInt(Date.parse(`${seconds}Z`)) * 1_000n + BigInt(fraction.padEnd(6, '0'));
}

function follow(journal: Journal, { orgId, sandboxId, runId, ...entry }: Line): void {
  const { runs, held, wrong } = journal;
  const before = held.get(sandboxId);
  if (entry.removed) {
    if (before?.running) wrong.push(`sandbox ${sandboxId} was removed while run ${before.runId} ran`);
    held.delete(sandboxId);
    return;
  }
  if (before?.running && before.runId !== runId) {
    wrong.push(`sandbox ${sandboxId} was given run ${runId} while run ${before.runId} ran`);
  }
  held.set(sandboxId, { runId, running: entry.state === 'running' });
  const known = runs.get(runId);
  if (entry.state === 'prepared') {
    if (known) wrong.push(`run ${runId} of sandbox ${sandboxId} was begun again after it had started`);
  } else if (entry.state === 'running' && entry.hasHandover) {
    if (!known)
      return void wrong.push(`run ${runId} of sandbox ${sandboxId} got a command before it started`);
    if (known.hasHandover) wrong.push(`run ${runId} of sandbox ${sandboxId} got its command twice`);
    known.hasHandover = true;
  } else if (entry.state === 'running') {
    if (known) wrong.push(`run ${runId} of sandbox ${sandboxId} was started twice`);
    const startedAt = micros(entry.startedAt!);
    runs.set(runId, { orgId, sandboxId, runId, startedAt, stoppedAt: null, hasHandover: false });
  } else if (!known || known.stoppedAt !== null || known.startedAt !== micros(entry.startedAt!)) {
    wrong.push(`run ${runId} of sandbox ${sandboxId} ended in a way that it had not started`);
  } else {
    known.stoppedAt = micros(entry.finishedAt!);
    if (known.stoppedAt < known.startedAt) wrong.push(`run ${runId} ended before it started`);
  }
}

/** Undefined for a truncated line. */
function parse(line: string): Line | undefined {
  try {
    return JSON.parse(line) as Line;
  } catch {
    return undefined;
  }
}
