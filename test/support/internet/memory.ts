import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from 'node:fs';

const CHUNK = 4 * 1024 * 1024;

/** All processes in the PID namespace of one. */
export function processesOf(pid: number): number[] {
  const namespace = readlinkSync(`/proc/${pid}/ns/pid`);
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((each) => {
      try {
        return readlinkSync(`/proc/${each}/ns/pid`) === namespace;
      } catch {
        return false;
      }
    });
}

/** Whether a process has the text anywhere in its memory. Needs root. */
export function memoryHolds(pid: number, text: string): boolean {
  const wanted = Buffer.from(text);
  const memory = openSync(`/proc/${pid}/mem`, 'r');
  try {
    for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
      const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) r/.exec(line) ?? [];
      if (from === undefined) continue;
      if (rangeHolds(memory, Number.parseInt(from, 16), Number.parseInt(to!, 16), wanted)) return true;
    }
    return false;
  } finally {
    closeSync(memory);
  }
}

/** Parts overlap, so that no text is cut. */
function rangeHolds(memory: number, from: number, to: number, wanted: Buffer): boolean {
  const chunk = Buffer.alloc(CHUNK);
  for (let position = from; position < to; position += CHUNK - wanted.length) {
    let length: number;
    try {
      length = readSync(memory, chunk, 0, Math.min(CHUNK, to - position), position);
    } catch {
      // Some ranges of the kernel cannot be read.
      return false;
    }
    if (chunk.subarray(0, length).includes(wanted)) return true;
  }
  return false;
}
