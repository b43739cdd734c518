import { concatBytes } from './bytes.js';

export type NumberedLine =
  { number: number; text: string } | { number: number; fault: 'too long' | 'not UTF-8' };

/**
 * Splits a stream of UTF-8 into lines, numbered from 1. A line longer than `longest` bytes is not held in memory. The
 * last line needs no line break. A byte order mark at the start of any line is removed, because concatenated files
 * contain them.
 */
export async function* numberedLines(
  chunks: AsyncIterable<Uint8Array>,
  longest: number,
): AsyncGenerator<NumberedLine> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let number = 0;
  let parts: Uint8Array[] = [];
  let length = 0;

  function take(): NumberedLine {
    const bytes = parts;
    const tooLong = length > longest;
    number += 1;
    parts = [];
    length = 0;
    if (tooLong) return { number, fault: 'too long' };
    try {
      return { number, text: decoder.decode(bytes.length === 1 ? bytes[0] : concatBytes(bytes)) };
    } catch {
      return { number, fault: 'not UTF-8' };
    }
  }

  function keep(part: Uint8Array): void {
    length += part.length;
    if (length <= longest) parts.push(part);
    else parts = [];
  }

  for await (const chunk of chunks) {
    let from = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
      keep(chunk.subarray(from, end));
      yield take();
      from = end + 1;
    }
    keep(chunk.subarray(from));
  }
  if (length > 0) yield take();
}
