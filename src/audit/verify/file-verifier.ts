import { sameBytes } from '../../lib/bytes.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { NumberedLine } from '../../lib/lines.js';
import type { ChainPosition } from '../events/chain-text.js';
import type { SignedCheckpoint, SignedDrop } from '../log/signed-text.js';
import { LogVerifier, type LogCrypto } from './log-verifier.js';
import { parseExportLine, type ExportLine } from './parse-line.js';
import { VerificationFault, type Verdict } from './verification-fault.js';

// Without Node: the console builds this file too.

export const LONGEST_LINE = 16 * 1024 * 1024;

export interface FilePart {
  org_id: string;
  after: ChainPosition;
  /** Undefined: the file has a fault other than a missing end. */
  end: ChainPosition | undefined;
  /** Checkpoints after the end of an incomplete file: the next file must reach them. */
  promised: readonly SignedCheckpoint[];
}

/** The end of the file is missing. A later export, which begins after the last entry here, completes it. */
class IncompleteFile extends VerificationFault {}

export type FileVerdict = Verdict & {
  begins_after: number;
  /** The key that signed the end, when a newer key replaced it: a holder of that key could have written the file. */
  replaced_key: string | null;
};

export function readLine(line: NumberedLine): ExportLine | ExplainedError {
  if ('fault' in line) return new ExplainedError(`line ${line.number} is ${line.fault}`);
  try {
    return parseExportLine(line.text, line.number);
  } catch (error) {
    if (error instanceof ExplainedError) return error;
    throw error;
  }
}

/** Verifies the lines of an exported log in their order. */
export class FileVerifier {
  private begin: (ChainPosition & { org_id: string }) | undefined;
  private readonly drops: SignedDrop[] = [];
  private promisedEnd: SignedCheckpoint | undefined;
  private lastCheckpoint: SignedCheckpoint | undefined;
  private log: LogVerifier | undefined;
  /** A line that could not be parsed: the file may be cut off within it. */
  private unreadable: VerificationFault | undefined;

  constructor(
    private readonly crypto: LogCrypto,
    private readonly promised: readonly SignedCheckpoint[] = [],
    private readonly onEntry: (seq: number) => void = () => undefined,
  ) {}

  verifyLine(read: ExportLine | ExplainedError): void {
    const parsed = this.requireReadable(read);
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
    if (promisedEnd.seq !== seq || !sameBytes(promisedEnd.link, link)) {
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
    const endKey = this.promisedEnd?.key_id ?? null;
    return {
      entries,
      checkpoints,
      unmarked,
      wrong: wrong?.message ?? null,
      fault: wrong?.fault ?? null,
      begins_after: this.begin?.seq ?? 0,
      replaced_key: endKey === this.crypto.currentKeyId ? null : endKey,
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
  private requireReadable(read: ExportLine | ExplainedError): ExportLine | undefined {
    if (this.unreadable) throw this.unreadable;
    if (!(read instanceof ExplainedError)) return read;
    if (!this.begin) throw read;
    this.unreadable = new VerificationFault(
      `${read.message}; it was changed, or the file was cut off within it`,
      'tampered',
      { seq: (this.log?.position.seq ?? this.begin.seq) + 1 },
    );
    return undefined;
  }

  /** Created at the first entry, which all records of the beginning precede. */
  private logVerifier(): LogVerifier {
    if (this.log) return this.log;
    const { begin } = this;
    if (!begin) throw new ExplainedError('the file does not begin like an exported log');
    this.log = new LogVerifier(begin.org_id, this.crypto, this.drops, this.promisedEnd);
    const { seq, link } = this.log.position;
    if (begin.seq > seq) this.log.startAfter(begin.seq, begin.link);
    else if (begin.seq < seq || !sameBytes(begin.link, link)) {
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
