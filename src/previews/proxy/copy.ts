import type { Readable, Writable } from 'node:stream';

interface Watch {
  /** Gets the number of the bytes of each chunk. */
  moved(this: void, bytes: number): void;
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
  const pass = (chunk: Buffer) => {
    moved(chunk.length);
    if (sink.write(chunk)) return;
    source.pause();
    timer = setTimeout(stalled, stallMs);
    // Most answers are never paused.
    sink.once('drain', goOn);
  };
  const goOn = () => {
    clearTimeout(timer);
    source.resume();
  };
  const end = () => {
    clearTimeout(timer);
    source.off('data', pass);
    sink.off('drain', goOn);
  };
  source.on('data', pass).once('close', end);
  sink.once('close', end);
  return end;
}
