import { createPartitionsForImport } from '../audit/events/partitions.js';
import { violatedConstraint, type Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { numberedLines, type NumberedLine } from '../lib/lines.js';
import { removeBadLines, removeKnownLines, type BadLineReport } from './check-queries.js';
import { loadStaged, zeroCounts, type Counts } from './load.js';
import { BadLine, parseLine } from './parse.js';
import { createStagingTables, KINDS, lockImports, StagingWriter } from './staging-queries.js';

const MAX_LINE_BYTES = 16 * 1024 * 1024;
/** Bounds the memory that a wholly invalid file takes. */
const MAX_REPORTS = 1_000;

export interface ImportResult {
  lines: number;
  imported: Counts;
  unchanged: Counts;
  bad: BadLineReport[];
  badCount: number;
  committed: boolean;
}

export interface ImportOptions {
  skipBad: boolean;
  onLine?: (line: number) => void;
}

class Rollback extends Error {}

/** Imports JSON lines in one transaction. Existing rows stay. With a bad line nothing is imported, unless `skipBad`. */
export async function importLines(
  pool: Pool,
  chunks: AsyncIterable<Buffer>,
  { skipBad, onLine }: ImportOptions,
): Promise<ImportResult> {
  const good = zeroCounts();
  let bad: BadLineReport[] = [];
  let badCount = 0;
  let lines = 0;
  let imported = zeroCounts();
  try {
    await inTransaction(
      pool,
      async (tx) => {
        await createStagingTables(tx);
        const stager = new StagingWriter(tx);
        const mark = await tx.eventMarker?.();
        for await (const line of numberedLines(chunks, MAX_LINE_BYTES)) {
          lines = line.number;
          onLine?.(lines);
          try {
            const parsed = parseLine(textOf(line), mark);
            if (!parsed) continue;
            await stager.add(lines, parsed);
            good[parsed.kind] += 1;
          } catch (error) {
            if (!(error instanceof BadLine)) throw error;
            badCount += 1;
            if (bad.length < MAX_REPORTS) bad.push({ line: lines, reason: error.message });
          }
        }
        await stager.flush();
        // Each import sees all of the previous one, or nothing.
        await lockImports(tx);
        await removeKnownLines(tx);
        const found = await removeBadLines(tx);
        for (const { kind } of found) good[kind] -= 1;
        badCount += found.length;
        bad = [...bad, ...found.map(({ line, reason }) => ({ line, reason }))]
          .toSorted((a, b) => a.line - b.line)
          .slice(0, MAX_REPORTS);
        if (badCount > 0 && !skipBad) throw new Rollback();
        await createPartitionsForImport(pool, tx);
        imported = await loadStaged(tx, now());
      },
      { unhurried: true },
    );
  } catch (error) {
    if (violatedConstraint(error) !== undefined) {
      throw new ExplainedError(
        'another process changed the same rows during the import, and nothing was loaded: run it again',
        { cause: error },
      );
    }
    if (!(error instanceof Rollback)) throw error;
    return { lines, imported: zeroCounts(), unchanged: zeroCounts(), bad, badCount, committed: false };
  }
  const unchanged = zeroCounts();
  for (const kind of KINDS) unchanged[kind] = good[kind] - imported[kind];
  return { lines, imported, unchanged, bad, badCount, committed: true };
}

function textOf(line: NumberedLine): string {
  if ('text' in line) return line.text;
  throw new BadLine(
    line.fault === 'too long' ? `is longer than ${MAX_LINE_BYTES / 1024 / 1024} MiB` : 'is not UTF-8',
  );
}
