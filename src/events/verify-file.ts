import { numberedLines } from '../lib/lines.js';
import { ExplainedError } from '../lib/explained.js';
import type { Checkpoint, Drop } from './checkpoint.js';
import { readLogLine, type LogLine } from './log-file.js';
import type { PublicKey } from './signing-key.js';
import { Tampered, Walk, type Verdict } from './verify.js';

const LONGEST_LINE = 16 * 1024 * 1024;

/**
 * Walks an exported log, in bounded memory. Returns the first thing that is wrong with it. Throws ExplainedError for a file
 * that is none. `onEntry`: called with the number of each entry.
 */
export async function verifyFile(
  chunks: AsyncIterable<Buffer>,
  trusted: readonly PublicKey[],
  onEntry: (seq: number) => void = () => undefined,
): Promise<Verdict & { begins_after: number }> {
  let begin: { org_id: string; after_seq: number; link: Buffer } | undefined;
  const drops: Drop[] = [];
  let walk: Walk | undefined;
  let end: Checkpoint | undefined;
  let wrong: string | null = null;

  /** All that comes before the entries is known when the first of them comes. */
  function walked(): Walk {
    if (!begin) throw new ExplainedError('the file does not begin like an exported log');
    if (walk) return walk;
    walk = new Walk(begin.org_id, trusted, drops);
    const { seq, link } = walk.place;
    // A part of a log: what lies before it is for another file.
    if (begin.after_seq > seq) walk.beginAfter(begin.after_seq, begin.link);
    else if (begin.after_seq < seq || !begin.link.equals(link)) {
      throw new Tampered('the file says another beginning than the log of its organization has');
    }
    return walk;
  }

  function take(line: LogLine): void {
    if ('begin' in line) {
      if (begin) throw new Tampered('the file begins twice: two files were put together');
      begin = line.begin;
    } else if ('drop' in line) {
      if (walk)
        throw new Tampered('what retention dropped must come before the entries: lines were reordered');
      drops.push(line.drop);
    } else if ('checkpoint' in line) {
      end = line.checkpoint;
      // One of a moment after the last entry says below what is missing.
      if (end.seq <= walked().place.seq) walked().meet(end);
    } else {
      walked().next(line.entry);
      onEntry(line.entry.seq);
    }
  }

  try {
    for await (const line of numberedLines(chunks, LONGEST_LINE)) {
      if ('fault' in line) throw new ExplainedError(`line ${line.number} is ${line.fault}`);
      take(readLogLine(line.text, line.number));
    }
    walked().finish(end);
  } catch (error) {
    if (!(error instanceof Tampered)) throw error;
    wrong = error.message;
  }
  const { entries = 0, checkpoints = 0 } = walk ?? {};
  return { entries, checkpoints, wrong, begins_after: begin?.after_seq ?? 0 };
}
