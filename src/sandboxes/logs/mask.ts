import type { LogChunk } from '../../engine/runtime.js';
import type { SecretMask } from '../../secrets/mask.js';

/** The most of one line that waits for its end, in characters. */
const LONGEST = 64 * 1024;

/**
 * Masks the lines of a log. A long line comes in parts, and a value can be cut between two. So the parts of a line are
 * joined, up to a bound. The joined part has the position of the last one, after which a reader continues.
 */
export async function* maskedChunks(
  chunks: AsyncIterable<Iterable<LogChunk>>,
  mask: SecretMask,
): AsyncIterable<Iterable<LogChunk>> {
  const waiting = new Map<string, LogChunk>();
  for await (const chunk of chunks) {
    const lines: LogChunk[] = [];
    for (const part of chunk) {
      const before = waiting.get(part.source);
      const line = before ? { ...part, ts: before.ts, text: before.text + part.text } : part;
      waiting.delete(part.source);
      if (line.text.endsWith('\n') || line.text.length >= LONGEST) lines.push(masked(line, mask));
      else waiting.set(part.source, line);
    }
    if (lines.length > 0) yield lines;
  }
  if (waiting.size > 0) yield [...waiting.values()].map((line) => masked(line, mask));
}

function masked(line: LogChunk, mask: SecretMask): LogChunk {
  return { ...line, text: mask.replaced(line.text) };
}
