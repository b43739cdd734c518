/** The first chunk has at least this length, unless there is less in all. */
export async function* atLeast(length: number, chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begin: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    if (!begin) yield chunk;
    else {
      begin = Buffer.concat([begin, chunk]);
      if (begin.length < length) continue;
      yield begin;
      begin = undefined;
    }
  }
  if (begin && begin.length > 0) yield begin;
}
