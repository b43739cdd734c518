import { ExplainedError } from '../../lib/explained-error.js';
import { numberedLines, type NumberedLine } from '../../lib/lines.js';
import type { LogPosition } from '../events/hash-chain.js';
import type { Checkpoint, DropRecord } from '../log/checkpoint.js';
import { parseExportLine, type ExportLine } from './export-line.js';
import { LogVerifier, type Trust } from './log-verifier.js';
import type { KnownPosition } from './reference-logs.js';
import { VerificationFault, type Verdict } from './verification-fault.js';

const LONGEST_LINE = 16 * 1024 * 1024;

export interface FilePart {
  org_id: string;
  after: LogPosition;
  /** Undefined: the file has a fault other than a missing end. */
  end: LogPosition | undefined;
  /** Checkpoints after the end of an incomplete file: the next file must reach them. */
  promised: readonly Checkpoint[];
}

/** The end of the file is missing. A later export, which begins after the last entry here, completes it. */
class IncompleteFile extends VerificationFault {}

export type FileVerdict = Verdict & {
  begins_after: number;
  /** The key that signed the end, when a newer key replaced it: a holder of that key could have written the file. */
  replaced_key: string | null;
};

/** `promised`: by the previous file. Throws ExplainedError for a file that does not begin like an export. */
export async function verifyFile(
  chunks: AsyncIterable<Buffer>,
  trust: Trust,
  promised: readonly Checkpoint[] = [],
  onEntry: (seq: number) => void = () => undefined,
): Promise<{ verdict: FileVerdict; part: FilePart | undefined }> {
  const file = new FileVerifier(trust, promised, onEntry);
  let wrong: VerificationFault | undefined;
  try {
    for await (const line of numberedLines(chunks, LONGEST_LINE)) file.verifyLine(line);
    file.verifyEnd();
  } catch (error) {
    if (!(error instanceof VerificationFault)) throw error;
    wrong = error;
  }
  return { verdict: file.verdict(wrong), part: file.part(wrong) };
}

class FileVerifier {
  private begin: (LogPosition & { org_id: string }) | undefined;
  private readonly drops: DropRecord[] = [];
  private promisedEnd: Checkpoint | undefined;
  private lastCheckpoint: Checkpoint | undefined;
  private log: LogVerifier | undefined;
  /** A line that could not be parsed: the file may be cut off within it. */
  private unreadable: VerificationFault | undefined;

  constructor(
    private readonly trust: Trust,
    private readonly promised: readonly Checkpoint[],
    private readonly onEntry: (seq: number) => void,
  ) {}

  verifyLine(line: NumberedLine): void {
    const parsed = this.parse(line);
    if (!parsed) return;
    if ('begin' in parsed) {
      if (this.begin) throw new VerificationFault('the file begins twice: two files were joined');
      this.begin = parsed.begin;
    } else if ('drop' in parsed) {
      if (this.log) throw misplaced('a record of dropped events comes after an entry');
      this.drops.push(parsed.drop);
    } else if ('end' in parsed) {
      if (this.log || this.promisedEnd) throw misplaced('the promised end is not in the first lines');
      this.promisedEnd = parsed.end;
    } else if ('checkpoint' in parsed) {
      this.lastCheckpoint = parsed.checkpoint;
      // `verifyEnd` reports the entries that are missing before a later checkpoint.
      if (parsed.checkpoint.seq <= this.logVerifier().position.seq) {
        this.logVerifier().verifyCheckpoint(parsed.checkpoint);
      }
    } else {
      const log = this.logVerifier();
      log.verifyEntry(parsed.entry);
      this.verifyPromised(log);
      this.onEntry(parsed.entry.seq);
    }
  }

  /** Compares the end with the promised one: a file cut off after any checkpoint would look complete. */
  verifyEnd(): void {
    const { promisedEnd } = this;
    if (!promisedEnd) {
      throw new VerificationFault('the first lines of the file do not promise its end: it was cut off');
    }
    const log = this.logVerifier();
    log.requireTrusted(promisedEnd);
    const { seq, link } = log.position;
    if (seq <= promisedEnd.seq && (this.lastCheckpoint?.seq ?? 0) < promisedEnd.seq) {
      const cut =
        seq < promisedEnd.seq
          ? endsEarly(seq, promisedEnd.seq)
          : 'the file has no signed end: it was cut off';
      throw new IncompleteFile(this.unreadable?.message ?? cut);
    }
    if (this.unreadable) throw this.unreadable;
    log.verifyEnd(this.lastCheckpoint);
    if (promisedEnd.seq !== seq || !promisedEnd.link.equals(link)) {
      throw new VerificationFault(endsEarly(seq, promisedEnd.seq));
    }
    const missed = this.promised.find((checkpoint) => checkpoint.seq > seq);
    if (missed) {
      throw new VerificationFault(
        `the file ends at entry ${seq}, but the previous file promised entries up to ${missed.seq}`,
      );
    }
  }

  verdict(wrong: VerificationFault | undefined): FileVerdict {
    const { entries = 0, checkpoints = 0, unmarked = 0 } = this.log ?? {};
    const [current] = this.trust.keys;
    const endKey = this.promisedEnd?.key_id ?? null;
    return {
      ...{ entries, checkpoints, unmarked },
      ...{ wrong: wrong?.message ?? null, fault: wrong?.fault ?? null },
      begins_after: this.begin?.seq ?? 0,
      replaced_key: endKey === current?.id ? null : endKey,
    };
  }

  part(wrong: VerificationFault | undefined): FilePart | undefined {
    if (!this.begin) return undefined;
    const { org_id, ...after } = this.begin;
    if (wrong && !(wrong instanceof IncompleteFile)) {
      return { org_id, after, end: undefined, promised: [] };
    }
    const { promisedEnd } = this;
    const open = wrong && promisedEnd ? [...this.promised, promisedEnd] : [];
    const ahead = open.filter(({ seq }) => seq >= this.logVerifier().position.seq);
    return { org_id, after, end: this.log?.position, promised: ahead };
  }

  /** Undefined: the line could not be parsed. A following line is then a fault. */
  private parse(line: NumberedLine): ExportLine | undefined {
    if (this.unreadable) throw this.unreadable;
    try {
      return parse(line);
    } catch (error) {
      if (!this.begin || !(error instanceof ExplainedError)) throw error;
      this.unreadable = new VerificationFault(
        `${error.message}; it was changed, or the file was cut off within it`,
      );
      return undefined;
    }
  }

  /** Created at the first entry, which all records of the beginning precede. */
  private logVerifier(): LogVerifier {
    if (this.log) return this.log;
    const { begin } = this;
    if (!begin) throw new ExplainedError('the file does not begin like an exported log');
    this.log = new LogVerifier(begin.org_id, this.trust, this.drops, this.promisedEnd);
    const { seq, link } = this.log.position;
    if (begin.seq > seq) this.log.startAfter(begin.seq, begin.link);
    else if (begin.seq < seq || !begin.link.equals(link)) {
      throw new VerificationFault('the file begins at another entry than the log of its organization');
    }
    this.verifyPromised(this.log);
    return this.log;
  }

  private verifyPromised(log: LogVerifier): void {
    for (const checkpoint of this.promised) {
      if (checkpoint.seq === log.position.seq) log.verifyCheckpoint(checkpoint);
    }
  }
}

function misplaced(sentence: string): VerificationFault {
  return new VerificationFault(`${sentence}: lines were reordered`);
}

function endsEarly(seq: number, upTo: number): string {
  return `the file ends at entry ${seq}, but its first lines promise entries up to ${upTo}: its end was cut off`;
}

export async function* positionsOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<KnownPosition> {
  for await (const line of numberedLines(chunks, LONGEST_LINE)) {
    const parsed = parse(line);
    if (!('entry' in parsed)) continue;
    const { seq, link, occurred_at } = parsed.entry;
    yield { seq, link, occurred_at };
  }
}

function parse(line: NumberedLine): ExportLine {
  if ('fault' in line) throw new ExplainedError(`line ${line.number} is ${line.fault}`);
  return parseExportLine(line.text, line.number);
}
