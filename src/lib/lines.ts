/**
 * Splits a stream of UTF-8 into lines, numbered from 1. A line longer than `longest` bytes comes as `undefined`, without
 * ever being held in memory whole. The last line needs no line break.
 */
export async function* numberedLines(
  chunks: AsyncIterable<Buffer>,
  longest: number,
): AsyncGenerator<{ number: number; text: string | undefined }> {
  let number = 0;
  let parts: Buffer[] = [];
  let length = 0;

  function take(): { number: number; text: string | undefined } {
    const text = length > longest ? undefined : Buffer.concat(parts).toString();
    number += 1;
    parts = [];
    length = 0;
    return { number, text };
  }

  function keep(part: Buffer): void {
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
