import { numberedLines } from '../../lib/lines.js';
import type { SignedCheckpoint } from '../log/signed-text.js';
import { FileVerifier, LONGEST_LINE, readLine, type FilePart, type FileVerdict } from './file-verifier.js';
import { nodeCrypto, type Trust } from './node-crypto.js';
import type { KnownPosition } from './reference-logs.js';
import { VerificationFault } from './verification-fault.js';

/** `promised`: by the previous file. Throws ExplainedError for a file that does not begin like an export. */
export async function verifyFile(
  chunks: AsyncIterable<Buffer>,
  trust: Trust,
  promised: readonly SignedCheckpoint[] = [],
  onEntry: (seq: number) => void = () => undefined,
): Promise<{ verdict: FileVerdict; part: FilePart | undefined }> {
  const file = new FileVerifier(nodeCrypto(trust), promised, onEntry);
  let wrong: VerificationFault | undefined;
  try {
    for await (const line of numberedLines(chunks, LONGEST_LINE)) file.verifyLine(readLine(line));
    file.verifyEnd();
  } catch (error) {
    if (!(error instanceof VerificationFault)) throw error;
    wrong = error;
  }
  return { verdict: file.verdict(wrong), part: file.part(wrong) };
}

export async function* positionsOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<KnownPosition> {
  for await (const line of numberedLines(chunks, LONGEST_LINE)) {
    const parsed = readLine(line);
    if (parsed instanceof Error) throw parsed;
    if (!('entry' in parsed)) continue;
    const { seq, link, occurred_at } = parsed.entry;
    yield { seq, link, occurred_at };
  }
}
