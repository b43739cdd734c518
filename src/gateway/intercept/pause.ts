import type { Readable } from 'node:stream';

/** Reads no more of the stream until `wait` is over. */
export function pauseFor(stream: Readable, wait: Promise<void> | undefined): void {
  if (!wait) return;
  stream.pause();
  void wait.then(() => stream.resume()).catch(() => stream.destroy());
}
