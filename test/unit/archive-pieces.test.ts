import { Buffer } from 'node:buffer';
import { expect, test } from 'vitest';
import { piecesOf } from '../../src/engines/microvm/snapshots/archive-machine.js';
import { LIMIT } from '../../src/guest/protocol.js';

const FULL = LIMIT.archivePiece;

function framed(...lengths: number[]): Buffer {
  const frames = lengths.map((length, index) => {
    const frame = Buffer.alloc(4 + length, index + 1);
    frame.writeUInt32LE(length);
    return frame;
  });
  return Buffer.concat(frames);
}

/** The bytes of the pieces, and whether the archive is complete. */
async function read(stream: Buffer, chunkBytes: number): Promise<[bytes: Buffer, isWhole: boolean]> {
  async function* chunks() {
    for (let at = 0; at < stream.length; at += chunkBytes) yield stream.subarray(at, at + chunkBytes);
  }
  const pieces = piecesOf(chunks());
  const parts: Buffer[] = [];
  for (;;) {
    const next = await pieces.next();
    if (next.done === true) return [Buffer.concat(parts), next.value];
    parts.push(Buffer.from(next.value));
  }
}

test.each([1, 3, 5, 1_000, FULL, 1e6])(
  'an archive that arrives in chunks of %i bytes is whole',
  async (bytes) => {
    const [content, isWhole] = await read(framed(FULL, 500, 0), bytes);
    expect(isWhole).toBe(true);
    expect(content.equals(Buffer.concat([Buffer.alloc(FULL, 1), Buffer.alloc(500, 2)]))).toBe(true);
  },
);

test.each([
  ['a short piece before the last one', framed(500, 500, 0)],
  ['a piece that is too long', framed(FULL + 1, 0)],
  ['no end', framed(FULL, 500)],
  ['half a piece at its end', framed(FULL, FULL).subarray(0, -1)],
  ['nothing', Buffer.alloc(0)],
])('an archive with %s is not whole', async (_, stream) => {
  for (const chunkBytes of [7, 1e6]) expect((await read(stream, chunkBytes))[1]).toBe(false);
});
