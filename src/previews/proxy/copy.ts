import type { Readable, Writable } from 'node:stream';

interface Watch {
  /** Gets the number of the bytes of each chunk. Returns the wait for the next chunk, if any. */
  moved(this: void, bytes: number): Promise<void> | undefined;
  /** The sink has accepted nothing for `stallMs`. */
  stalled(this: void): void;
  stallMs: number;
}

/**
 * Copies with back-pressure, and leaves the end to the caller. Memory holds one chunk beyond the buffers of both.
 * Returns a function that ends the copying.
 */
export function copy(source: Readable, sink: Writable, { moved, stalled, stallMs }: Watch): () => void {
  let timer: NodeJS.Timeout | undefined;
  let isOver = false;
  const pass = (chunk: Buffer) => {
    const wait = moved(chunk.length);
    const accepts = sink.write(chunk);
    // Most answers are never paused.
    if (wait) {
      source.pause();
      void wait.then(() => !isOver && (sink.writableNeedDrain ? awaitDrain() : goOn()));
    } else if (!accepts) {
      source.pause();
      awaitDrain();
    }
  };
  const awaitDrain = () => {
    timer = setTimeout(stalled, stallMs);
    sink.once('drain', goOn);
  };
  const goOn = () => {
    clearTimeout(timer);
    source.resume();
  };
  const end = () => {
    isOver = true;
    clearTimeout(timer);
    source.off('data', pass);
    sink.off('drain', goOn);
  };
  source.on('data', pass).once('close', end);
  sink.once('close', end);
  return end;
}
