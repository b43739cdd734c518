import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { SeenHeads, readSeenHeads } from '../../src/audit/log/seen-heads.js';

const all = mkdtempSync(join(tmpdir(), 'sandkeep-heads-'));
afterAll(() => rmSync(all, { recursive: true, force: true }));

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(all, 'one-'));
  file = join(folder, 'event-heads');
});

const [one, two] = [uuidv7(), uuidv7()];
const head = (seq: number, byte = seq) => ({ seq, link: Buffer.alloc(32, byte) });
const seqs = () => new Map([...readSeenHeads(file)].map(([org, { seq }]) => [org, seq]));

test('a file shared by two processes keeps the later end of each log', async () => {
  const [first, second] = [new SeenHeads(file), new SeenHeads(file)];
  first.set(one, head(100));
  await first.write({ now: true });
  second.set(one, head(5));
  second.set(two, head(7));
  await second.write({ now: true });
  expect(seqs()).toEqual(
    new Map([
      [one, 100],
      [two, 7],
    ]),
  );
  expect(second.get(one)).toEqual(head(100));
  first.set(two, head(6));
  await first.write({ now: true });
  expect(seqs()).toEqual(
    new Map([
      [one, 100],
      [two, 7],
    ]),
  );
});

test('a process writes its heads again after another process overwrote them', async () => {
  const heads = new SeenHeads(file);
  heads.set(one, head(5));
  await heads.write({ now: true });
  const before = readFileSync(file);
  heads.set(one, head(100));
  await heads.write({ now: true });
  // The other process had read the file earlier.
  writeFileSync(file, before);
  await heads.write({ now: true });
  expect(seqs()).toEqual(new Map([[one, 100]]));
});

test('a process keeps its own head where another process has a different one for the same entry', async () => {
  const [first, second] = [new SeenHeads(file), new SeenHeads(file)];
  first.set(one, head(5, 1));
  await first.write({ now: true });
  second.set(one, head(5, 2));
  second.set(two, head(1));
  await second.write({ now: true });
  expect(second.get(one)).toEqual(head(5, 2));
});

test('heads that could not be written are written the next time', async () => {
  const heads = new SeenHeads(file);
  heads.set(one, head(5));
  rmSync(folder, { recursive: true });
  await expect(heads.write({ now: true })).rejects.toThrow('ENOENT');
  mkdirSync(folder);
  await heads.write({ now: true });
  expect(seqs()).toEqual(new Map([[one, 5]]));
  expect(readdirSync(folder)).toEqual(['event-heads']);
});

test('a file with other content is refused, with the remedy', () => {
  writeFileSync(file, Buffer.alloc(100));
  expect(() => new SeenHeads(file)).toThrow(/event-heads is damaged.*then remove the file/);
});
