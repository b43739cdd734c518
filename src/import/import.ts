import { inTransaction } from '../db/transaction.js';
import type { Pool } from '../db/pool.js';
import { now } from '../lib/instant.js';
import { numberedLines } from '../lib/lines.js';
import { removeBadLines, type BadLineReport } from './check.js';
import { loadStaged, type Counts } from './load.js';
import { BadLine, parseLine } from './parse.js';
import { KINDS, makeStaging, Stager } from './staging.js';

const LONGEST_LINE = 16 * 1024 * 1024;
/** Reports kept: a file that is wholly wrong must not fill the memory. */
const MOST_REPORTS = 1_000;

export interface ImportResult {
  lines: number;
  /** Rows that are new, by kind. */
  imported: Counts;
  /** Good lines whose id was there before, by kind. */
  unchanged: Counts;
  /** The first thousand bad lines, and how many there are. */
  bad: BadLineReport[];
  badCount: number;
  /** False when bad lines kept everything out. */
  committed: boolean;
}

export interface ImportOptions {
  /** Loads the good lines although there are bad ones. */
  skipBad: boolean;
  onLine?: (line: number) => void;
}

class Rollback extends Error {}

/**
 * Loads history, one JSON object a line, in one transaction. Idempotent by id: what is there already is left as it is.
 * With a bad line nothing is loaded, unless `skipBad`.
 */
export async function importLines(
  pool: Pool,
  chunks: AsyncIterable<Buffer>,
  { skipBad, onLine }: ImportOptions,
): Promise<ImportResult> {
  const good = zero();
  const bad: BadLineReport[] = [];
  let badCount = 0;
  const report = ({ line, reason }: BadLineReport) => {
    badCount += 1;
    if (bad.length < MOST_REPORTS) bad.push({ line, reason });
  };
  let lines = 0;
  let imported = zero();
  try {
    await inTransaction(
      pool,
      async (tx) => {
        await makeStaging(tx);
        const stager = new Stager(tx);
        for await (const { number, text } of numberedLines(chunks, LONGEST_LINE)) {
          lines = number;
          onLine?.(number);
          if (text?.trim() === '') continue;
          try {
            if (text === undefined) throw new BadLine(`is longer than ${LONGEST_LINE / 1024 / 1024} MiB`);
            const parsed = parseLine(text);
            await stager.add(number, parsed);
            good[parsed.kind] += 1;
          } catch (error) {
            if (!(error instanceof BadLine)) throw error;
            report({ line: number, reason: error.message });
          }
        }
        await stager.flush();
        for (const found of await removeBadLines(tx)) {
          report(found);
          good[found.kind] -= 1;
        }
        bad.sort((a, b) => a.line - b.line);
        if (badCount > 0 && !skipBad) throw new Rollback();
        imported = await loadStaged(tx, now());
      },
      { unhurried: true },
    );
  } catch (error) {
    if (!(error instanceof Rollback)) throw error;
    return { lines, imported: zero(), unchanged: zero(), bad, badCount, committed: false };
  }
  const unchanged = zero();
  for (const kind of KINDS) unchanged[kind] = good[kind] - imported[kind];
  return { lines, imported, unchanged, bad, badCount, committed: true };
}

function zero(): Counts {
  return { org: 0, sandbox: 0, run: 0, volume: 0, accrual: 0, event: 0 };
}
