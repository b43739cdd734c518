import { ExplainedError } from '../../lib/explained-error.js';
import { numberedLines, type NumberedLine } from '../../lib/lines.js';
import type { Checkpoint, Drop } from '../log/checkpoint.js';
import { readLogLine, type LogLine } from './log-file.js';
import { Walk, Wrong, type Trust, type Verdict } from './walk.js';
import type { KnownPlace } from './witnesses.js';

const LONGEST_LINE = 16 * 1024 * 1024;

/** The part of a log that is in a file. */
export interface LogPart {
  org_id: string;
  /** It begins behind this entry. */
  after: KnownPlace;
  /** Undefined when anything is wrong with it but that it broke off here. */
  end: KnownPlace | undefined;
  /** The signed places that a part which broke off does not come to: those that go on from it must. */
  promised: readonly Checkpoint[];
}

/** The last line is missing, or more: what was exported after the last entry that is there makes it whole. */
class BrokeOff extends Wrong {}

export type FileVerdict = Verdict & {
  begins_after: number;
  /** The key that signed its end, when another has replaced it since: whoever has that key may have written the file. */
  replaced_key: string | null;
};

/**
 * Walks an exported log, in bounded memory. Returns the first thing that is wrong with it. Throws ExplainedError for a file
 * that does not begin like one. `promised`: of the part before it. `onEntry`: called with the number of each entry.
 */
export async function verifyFile(
  chunks: AsyncIterable<Buffer>,
  trust: Trust,
  promised: readonly Checkpoint[] = [],
  onEntry: (seq: number) => void = () => undefined,
): Promise<{ verdict: FileVerdict; part: LogPart | undefined }> {
  let begin: { org_id: string; after_seq: number; link: Buffer } | undefined;
  const drops: Drop[] = [];
  let whole: Checkpoint | undefined;
  let walk: Walk | undefined;
  let end: Checkpoint | undefined;
  let wrong: Wrong | undefined;

  /** All that comes before the entries is known when the first of them comes. */
  function walked(): Walk {
    if (!begin) throw new ExplainedError('the file does not begin like an exported log');
    if (walk) return walk;
    walk = new Walk(begin.org_id, trust, drops, whole);
    const { seq, link } = walk.place;
    // A part of a log: what lies before it is for another file.
    if (begin.after_seq > seq) walk.beginAfter(begin.after_seq, begin.link);
    else if (begin.after_seq < seq || !begin.link.equals(link)) {
      throw new Wrong('the file says another beginning than the log of its organization has');
    }
    meetPromised(walk);
    return walk;
  }

  /** A file that has begun like a log is judged, whatever comes. Where it broke off there may be half a line. */
  let unread: Wrong | undefined;
  function readOn(line: NumberedLine): LogLine | undefined {
    if (unread) throw unread;
    try {
      return read(line);
    } catch (error) {
      if (!begin || !(error instanceof ExplainedError)) throw error;
      unread = new Wrong(`${error.message}; it was changed, or the file was cut off within it`);
      return undefined;
    }
  }

  function meetPromised(walk: Walk): void {
    for (const one of promised) if (one.seq === walk.place.seq) walk.meet(one);
  }

  function take(line: LogLine): void {
    if ('begin' in line) {
      if (begin) throw new Wrong('the file begins twice: two files were put together');
      begin = line.begin;
    } else if ('drop' in line) {
      if (walk) throw new Wrong('what retention dropped must come before the entries: lines were reordered');
      drops.push(line.drop);
    } else if ('end' in line) {
      if (walk || whole) throw new Wrong('the end is not said in the first lines: lines were reordered');
      whole = line.end;
    } else if ('checkpoint' in line) {
      end = line.checkpoint;
      // One of a moment after the last entry says below what is missing.
      if (end.seq <= walked().place.seq) walked().meet(end);
    } else {
      walked().next(line.entry);
      meetPromised(walked());
      onEntry(line.entry.seq);
    }
  }

  /** Each checkpoint within would make an end, too: a file that was cut off behind one is not whole. */
  function checkWhole(): void {
    if (!whole)
      throw new Wrong('the file does not say in its first lines where it ends: its end was cut off');
    walked().believe(whole);
    const { seq, link } = walked().place;
    const missing = (upTo: number) =>
      `the file ends at entry ${seq}, and was made up to entry ${upTo}: its end was cut off`;
    if (seq <= whole.seq && (end?.seq ?? 0) < whole.seq) {
      const cut = seq < whole.seq ? missing(whole.seq) : 'the file has no signed end: it was cut off';
      throw new BrokeOff(unread?.message ?? cut);
    }
    if (unread) throw unread;
    walked().finish(end);
    if (whole.seq !== seq || !whole.link.equals(link)) throw new Wrong(missing(whole.seq));
    const missed = promised.find((one) => one.seq > seq);
    if (missed)
      throw new Wrong(`the file ends at entry ${seq}, and the one before was made up to ${missed.seq}`);
  }

  try {
    for await (const line of numberedLines(chunks, LONGEST_LINE)) {
      const said = readOn(line);
      if (said) take(said);
    }
    checkWhole();
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
    wrong = error;
  }
  const { entries = 0, checkpoints = 0, unmarked = 0 } = walk ?? {};
  const verdict = {
    ...{ entries, checkpoints, unmarked },
    ...{ wrong: wrong?.message ?? null, fault: wrong?.fault ?? null },
    begins_after: begin?.after_seq ?? 0,
    replaced_key: whole && whole.key_id !== trust.keys[0]?.id ? whole.key_id : null,
  };
  if (!begin) return { verdict, part: undefined };
  const { org_id, after_seq, link } = begin;
  const after = { seq: after_seq, link };
  if (wrong && !(wrong instanceof BrokeOff)) {
    return { verdict, part: { org_id, after, end: undefined, promised: [] } };
  }
  const ahead = wrong && whole ? [...promised, whole].filter(({ seq }) => seq >= walked().place.seq) : [];
  return { verdict, part: { org_id, after, end: walk?.place, promised: ahead } };
}

/** The places of the entries of a file that is in order. */
export async function* placesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<KnownPlace> {
  for await (const line of numberedLines(chunks, LONGEST_LINE)) {
    const found = read(line);
    if (!('entry' in found)) continue;
    const { seq, link, occurred_at } = found.entry;
    yield { seq, link, occurred_at };
  }
}

/** Throws ExplainedError. */
function read(line: NumberedLine): LogLine {
  if ('fault' in line) throw new ExplainedError(`line ${line.number} is ${line.fault}`);
  return readLogLine(line.text, line.number);
}
