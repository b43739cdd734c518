import type { Readable } from 'node:stream';
import { LARGEST_BODY } from '../secrets/substitute.js';

/** All sandboxes together, and each of them, get so much. It is more than one body. */
const MOST_BYTES = 256 * 1024 ** 2;
const MOST_OF_SANDBOX = 64 * 1024 ** 2;

let total = 0;
const bySandbox = new Map<string, number>();

/** The room that bodies take while they are read whole. */
class Room {
  private taken = 0;

  constructor(private readonly sandbox: string) {}

  take(bytes: number): boolean {
    const own = bySandbox.get(this.sandbox) ?? 0;
    if (total + bytes > MOST_BYTES || own + bytes > MOST_OF_SANDBOX) return false;
    this.add(bytes);
    return true;
  }

  free(): void {
    this.add(-this.taken);
  }

  private add(bytes: number): void {
    this.taken += bytes;
    total += bytes;
    const own = (bySandbox.get(this.sandbox) ?? 0) + bytes;
    if (own === 0) bySandbox.delete(this.sandbox);
    else bySandbox.set(this.sandbox, own);
  }
}

/**
 * `whole`: all of it. `large`: its first bytes, and more than may be in memory is to come. `full`: other bodies take
 * the room. `broken`: it ended early.
 */
export type Read =
  | { kind: 'whole'; body: Buffer; free: () => void }
  | { kind: 'large'; first: Buffer; free: () => void }
  | { kind: 'full' }
  | { kind: 'broken' };

export function readBody(stream: Readable, sandbox: string): Promise<Read> {
  const room = new Room(sandbox);
  const parts: Buffer[] = [];
  let length = 0;
  return new Promise((resolve) => {
    const settle = (read: Read) => {
      stream.pause();
      stream.off('data', add).off('end', end).off('error', fail).off('close', fail);
      if (!('free' in read)) room.free();
      resolve(read);
    };
    const free = () => room.free();
    const add = (part: Buffer) => {
      if (!room.take(part.length)) return settle({ kind: 'full' });
      parts.push(part);
      length += part.length;
      if (length > LARGEST_BODY) settle({ kind: 'large', first: Buffer.concat(parts), free });
    };
    const end = () => settle({ kind: 'whole', body: Buffer.concat(parts), free });
    const fail = () => settle({ kind: 'broken' });
    stream.on('data', add).on('end', end).on('error', fail).on('close', fail);
  });
}
