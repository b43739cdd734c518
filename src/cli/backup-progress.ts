import { SingleBar } from 'cli-progress';

interface Bar {
  /** The bytes so far. */
  at(bytes: number): void;
  name(name: string): void;
}

const SILENT: Bar = { at: () => undefined, name: () => undefined };
const MIB = 1024 * 1024;

/** Shows progress on a terminal. `total`: in bytes; undefined where the end is not known. */
export async function withBar<T>(total: number | undefined, work: (bar: Bar) => Promise<T>): Promise<T> {
  if (!process.stderr.isTTY) return work(SILENT);
  const format = total === undefined ? '{name}' : '{bar} {percentage} % {name}';
  const bar = new SingleBar({ format, stream: process.stderr, hideCursor: true });
  bar.start(total ?? 0, 0, { name: '' });
  try {
    return await work({ at: (bytes) => bar.update(bytes), name: (name) => bar.update({ name }) });
  } finally {
    bar.stop();
  }
}

export function byteText(bytes: number): string {
  return bytes < MIB ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / MIB).toFixed(1)} MiB`;
}
