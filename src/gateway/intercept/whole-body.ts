import type { Readable } from 'node:stream';
import type { Release } from '../../fairness/slots.js';
import { LARGEST_BODY } from '../secrets/substitute.js';
import type { Connection } from './connection.js';

/**
 * `whole`: all of it. `large`: its first bytes, and more than may be in memory is to come. `full`: other bodies take
 * the room. `broken`: it ended early.
 */
export type Read =
  | { kind: 'whole'; body: Buffer; free: () => void }
  | { kind: 'large'; first: Buffer; free: () => void }
  | { kind: 'full' }
  | { kind: 'broken' };

export function readBody(stream: Readable, { work, orgId }: Connection): Promise<Read> {
  const taken: Release[] = [];
  const parts: Buffer[] = [];
  let length = 0;
  const free = () => {
    for (const release of taken.splice(0)) release();
  };
  return new Promise((resolve) => {
    const settle = (read: Read) => {
      stream.pause();
      stream.off('data', add).off('end', end).off('error', fail).off('close', fail);
      if (!('free' in read)) free();
      resolve(read);
    };
    const add = (part: Buffer) => {
      const release = work.takeBody(orgId, part.length);
      if (!release) return settle({ kind: 'full' });
      taken.push(release);
      parts.push(part);
      length += part.length;
      if (length > LARGEST_BODY) settle({ kind: 'large', first: Buffer.concat(parts), free });
    };
    const end = () => settle({ kind: 'whole', body: Buffer.concat(parts), free });
    const fail = () => settle({ kind: 'broken' });
    stream.on('data', add).on('end', end).on('error', fail).on('close', fail);
  });
}
