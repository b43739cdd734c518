import { ExplainedError } from '../../lib/explained-error.js';
import { numberedLines } from '../../lib/lines.js';
import type { ChainEntry } from '../events/chain-text.js';
import { FileVerifier, LONGEST_LINE, readLine, type FileVerdict } from './file-verifier.js';
import type { ExportLine } from './parse-line.js';
import { VerificationFault, type FaultPlace } from './verification-fault.js';
import { WebCrypto, type WebKey } from './web-crypto.js';

const BATCH_LINES = 500;
const BATCH_LENGTH = 1024 * 1024;
const SHOWN_BEFORE_FAULT = 2;

export interface Progress {
  seq: number;
  /** The promised end. */
  upTo: number;
}

type SeenEntry = Pick<ChainEntry, 'seq' | 'event_id' | 'occurred_at'> & { event_type: string | null };

export interface StreamVerdict extends FileVerdict {
  /** The place of the fault, when it is at an entry or a checkpoint. */
  place: FaultPlace | null;
  line: number | null;
  /** The last entries in order before the fault. */
  before: SeenEntry[];
  end_key: string | null;
  up_to: number;
}

/** `keys`: undefined verifies no signatures. Throws ExplainedError for a stream that does not begin like an export. */
export async function verifyStream(
  chunks: AsyncIterable<Uint8Array>,
  keys: readonly WebKey[] | undefined,
  onProgress: (progress: Progress) => void = () => undefined,
): Promise<StreamVerdict> {
  const crypto = new WebCrypto(keys);
  const file = new FileVerifier(crypto);
  const seen: SeenEntry[] = [];
  let [line, seq, upTo] = [0, 0, 0];
  let endKey: string | null = null;
  let wrong: VerificationFault | undefined;
  try {
    for await (const batch of batchesOf(chunks)) {
      await crypto.prepare(batch.filter((read): read is ExportLine => !(read instanceof ExplainedError)));
      for (const read of batch) {
        line += 1;
        if ('end' in read) [upTo, endKey] = [read.end.seq, read.end.key_id];
        file.verifyLine(read);
        if (!('entry' in read)) continue;
        seq = read.entry.seq;
        remember(seen, read.entry);
      }
      onProgress({ seq, upTo });
    }
    line = 0;
    file.verifyEnd();
  } catch (error) {
    if (!(error instanceof VerificationFault)) throw error;
    wrong = error;
  }
  return {
    ...file.verdict(wrong),
    place: wrong?.place ?? null,
    line: wrong && line > 0 ? line : null,
    before: seen,
    end_key: endKey,
    up_to: upTo,
  };
}

function remember(seen: SeenEntry[], { seq, event_id, occurred_at, event }: ChainEntry): void {
  seen.push({ seq, event_id, occurred_at, event_type: event?.event_type ?? null });
  if (seen.length > SHOWN_BEFORE_FAULT) seen.shift();
}

async function* batchesOf(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<(ExportLine | ExplainedError)[]> {
  let batch: (ExportLine | ExplainedError)[] = [];
  let length = 0;
  for await (const line of numberedLines(chunks, LONGEST_LINE)) {
    batch.push(readLine(line));
    length += 'text' in line ? line.text.length : 0;
    if (batch.length < BATCH_LINES && length < BATCH_LENGTH) continue;
    yield batch;
    [batch, length] = [[], 0];
  }
  if (batch.length > 0) yield batch;
}
