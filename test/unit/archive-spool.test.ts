import { Buffer } from 'node:buffer';
import { mkdtempSync, readdirSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { EngineRoom } from '../../src/engine/snapshot-archives.js';
import { ArchiveSpool, type MostOfArchive } from '../../src/engines/microvm/snapshots/archive-spool.js';
import { LIMIT } from '../../src/guest/protocol.js';

const PIECE = LIMIT.archivePiece;
const MANY = { whole: 1e9, kept: 1e9 };

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-spool-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

/** Counts what is taken, and has no room for more than `most`. */
class CountedRoom implements EngineRoom {
  taken = 0;
  constructor(private readonly most = Infinity) {}
  check(bytes: number): void {
    if (this.taken + bytes > this.most) throw new Error('no room');
  }
  take(bytes: number): void {
    this.check(bytes);
    this.taken += bytes;
  }
  giveBack(bytes: number): void {
    this.taken -= bytes;
  }
}

async function openSpool(room: EngineRoom, most: MostOfArchive = MANY): Promise<ArchiveSpool> {
  const spool = await ArchiveSpool.open(directory, room, most);
  onTestFinished(async () => spool.close());
  return spool;
}

async function contentOf(spool: ArchiveSpool): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of spool.read()) parts.push(part);
  return Buffer.concat(parts);
}

test('an archive has every byte, zeros at its end too, and a file without a name', async () => {
  const room = new CountedRoom();
  const spool = await openSpool(room);
  const pieces = [
    Buffer.alloc(PIECE, 1),
    Buffer.alloc(PIECE),
    Buffer.alloc(PIECE).fill(2, PIECE - 1),
    Buffer.alloc(PIECE),
    Buffer.alloc(17),
  ];
  for (const piece of pieces) await spool.add(piece);
  await spool.finish();
  expect(readdirSync(directory)).toEqual([]);
  expect((await contentOf(spool)).equals(Buffer.concat(pieces))).toBe(true);
  expect([spool.size, room.taken]).toEqual([4 * PIECE + 17, 2 * PIECE]);
  await Promise.all([spool.close(), spool.close()]);
  expect(room.taken).toBe(0);
});

test('zeros take no room of the disk', async () => {
  const spool = await openSpool(new CountedRoom(0), { whole: 1e9, kept: 0 });
  for (let count = 0; count < 1_000; count += 1) await spool.add(Buffer.alloc(PIECE));
  await spool.finish();
  expect(spool.size).toBe(1_000 * PIECE);
  const [file] = readdirSync('/proc/self/fd').flatMap((fd) => {
    const path = `/proc/self/fd/${fd}`;
    try {
      return readlinkSync(path).startsWith(directory) ? statSync(path) : [];
    } catch {
      return [];
    }
  });
  expect(file).toMatchObject({ size: spool.size, blocks: 0 });
});

test('an archive beyond its bounds, or that finds no room, is refused before it is written', async () => {
  const room = new CountedRoom(PIECE);
  const spool = await openSpool(room, { whole: 3 * PIECE, kept: 2 * PIECE });
  await spool.add(Buffer.alloc(PIECE, 1));
  await expect(spool.add(Buffer.alloc(PIECE, 1))).rejects.toThrow('no room');
  expect(room.taken).toBe(PIECE);

  const kept = await openSpool(new CountedRoom(), { whole: 3 * PIECE, kept: PIECE });
  await kept.add(Buffer.alloc(PIECE, 1));
  await expect(kept.add(Buffer.alloc(1, 1))).rejects.toThrow('files with several names');

  const whole = await openSpool(new CountedRoom(), { whole: PIECE, kept: PIECE });
  await whole.add(Buffer.alloc(PIECE));
  await expect(whole.add(Buffer.alloc(1))).rejects.toThrow('remove files with holes');
});
