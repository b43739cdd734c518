import { appendFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import type { LogChunk, LogQuery } from '../../src/engine/runtime.js';
import { followOutput } from '../../src/engines/microvm/output-log.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { Dice } from '../crash/support/seeded-random.js';

const SEED = Number(process.env['SANDKEEP_TEST_SEED'] ?? Date.now() % 1_000_000);
const CHARACTERS = ['a', 'b', '\n', ' ', 'é', '€', '😀'];
const HEADER_BYTES = 16;

describe(`the output of virtual machines (SANDKEEP_TEST_SEED=${SEED})`, () => {
  const random = new Dice(SEED);
  let folder = '';
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  function makePlaces() {
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-output-'));
    const places = placesOf(folder, 'one');
    mkdirSync(places.directory, { recursive: true });
    return places;
  }

  /** The bytes of a text of random characters, divided anywhere. */
  function piecesOf(characters: number): Buffer[] {
    const text = Array.from(
      { length: characters },
      () => CHARACTERS[random.between(0, CHARACTERS.length - 1)],
    ).join('');
    const bytes = Buffer.from(text);
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length;) {
      const end = Math.min(bytes.length, at + random.between(1, 30));
      pieces.push(bytes.subarray(at, end));
      at = end;
    }
    return pieces;
  }

  /** Writes pieces as a supervisor does; see guest/supervise/log.c. */
  function writerOf({ output, olderOutput }: ReturnType<typeof placesOf>, limit: number) {
    let nanos = 1_700_000_000_000_000_000n;
    return (stream: 1 | 2, piece: Buffer) => {
      const size = statSync(output, { throwIfNoEntry: false })?.size ?? 0;
      if (size + HEADER_BYTES + piece.length > limit) renameSync(output, olderOutput);
      const header = Buffer.alloc(HEADER_BYTES);
      header.writeBigUInt64LE((nanos += BigInt(random.between(1, 1_000))));
      header.writeUInt32LE(piece.length, 8);
      header.writeUInt8(stream, 12);
      appendFileSync(output, Buffer.concat([header, piece]));
    };
  }

  async function read(
    places: ReturnType<typeof placesOf>,
    after: LogQuery['after'],
    wait: () => Promise<boolean>,
  ) {
    const chunks: LogChunk[] = [];
    const query = { sources: new Set(['stdout', 'stderr'] as const), after };
    for await (const lines of followOutput(places, query, wait)) chunks.push(...lines);
    return chunks;
  }
  const textOf = (chunks: readonly LogChunk[], source: string) =>
    chunks.flatMap((chunk) => (chunk.source === source ? chunk.text : [])).join('');

  test('is followed through every replacement of its file, without a loss', async () => {
    const places = makePlaces();
    const write = writerOf(places, 2_000);
    const left = [
      ...piecesOf(3_000).map((piece) => [1, piece] as const),
      ...piecesOf(500).map((piece) => [2, piece] as const),
    ];
    const written = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    const chunks = await read(places, {}, async () => {
      // Fewer bytes than a file holds: a slow reader loses what is replaced twice.
      for (const [stream, piece] of left.splice(0, random.between(1, 40))) {
        write(stream, piece);
        written[stream === 1 ? 'stdout' : 'stderr'].push(piece);
      }
      return Promise.resolve(left.length > 0);
    });
    for (const source of ['stdout', 'stderr'] as const)
      expect(textOf(chunks, source)).toBe(Buffer.concat(written[source]).toString());
  });

  test('is continued from any position, without a loss or a repetition', async () => {
    const places = makePlaces();
    const write = writerOf(places, Infinity);
    const all = piecesOf(800);
    for (const piece of all) write(1, piece);
    const whole = Buffer.concat(all).toString();
    const chunks = await read(places, {}, async () => Promise.resolve(false));
    expect(textOf(chunks, 'stdout')).toBe(whole);
    for (let round = 0; round < 30; round += 1) {
      const count = random.between(1, chunks.length);
      const { position } = chunks[count - 1]!;
      const rest = await read(places, { stdout: position }, async () => Promise.resolve(false));
      expect(textOf(chunks.slice(0, count), 'stdout') + textOf(rest, 'stdout')).toBe(whole);
    }
  });
});
