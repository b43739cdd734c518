import { expect, test } from 'vitest';
import { FRAME_BYTES, readLogStream } from '../../src/engines/docker/log-stream.js';
import { nanosOf } from '../../src/engine/log-times.js';
import type { LogQuery } from '../../src/engine/runtime.js';

const TS = '2026-01-31T12:00:00.123456789Z';
const ALL: LogQuery = { sources: new Set(['stdout', 'stderr']), after: {} };

function frame(stream: 1 | 2, payload: Buffer, ts = TS): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(ts.length + 1 + payload.length, 4);
  return Buffer.concat([header, Buffer.from(`${ts} `), payload]);
}

/** A generator of pseudo-random numbers below `limit`. */
function random(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

async function textsOf(chunks: Iterable<Buffer>, query = ALL): Promise<{ stdout: string; stderr: string }> {
  const texts = { stdout: '', stderr: '' };
  async function* source() {
    yield* chunks;
  }
  for await (const lines of readLogStream(source(), query)) {
    for (const { source: name, ts, text } of lines) {
      expect([name, ts]).toEqual([expect.stringMatching(/^std(out|err)$/), TS]);
      texts[name as 'stdout'] += text;
    }
  }
  return texts;
}

test.each([1, 2, 3, 4])('text survives any cut into frames and chunks (seed %d)', async (seed) => {
  const below = random(seed);
  const written = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  const frames = Array.from({ length: 300 }, () => {
    const size = below(20) === 0 ? below(3 * FRAME_BYTES) : below(80);
    const samples = [
      Buffer.from('grüße 🙂 €\n'),
      Buffer.from('y\n'),
      Buffer.from([0, 0xff, 0xc3, 0x28, 0x80]),
    ];
    const content = samples[below(3)]!;
    // A frame may begin and end inside a character.
    const text = Buffer.alloc(size + content.length, content).subarray(below(content.length));
    const isError = below(3) === 0;
    written[isError ? 'stderr' : 'stdout'].push(text);
    return frame(isError ? 2 : 1, text);
  });
  const bytes = Buffer.concat(frames);
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + below(below(2) === 0 ? 60 : 100_000);
    chunks.push(bytes.subarray(at, at + size));
    at += size;
  }
  const texts = await textsOf(chunks);
  for (const name of ['stdout', 'stderr'] as const) {
    // The independent decoder sees all bytes at once. The end of the log may cut a character.
    const expected = Buffer.concat(written[name]).toString();
    expect(texts[name].replace(/\ufffd+$/, '') === expected.replace(/\ufffd+$/, '')).toBe(true);
  }
});

test('a frame of 100 MB is passed on as it arrives', async () => {
  const chunk = Buffer.alloc(FRAME_BYTES, 'x');
  const count = 1_600;
  const head = frame(1, Buffer.alloc(0));
  head.writeUInt32BE(TS.length + 1 + count * chunk.length, 4);
  let given = 0;
  async function* source() {
    yield head;
    for (; given < count; given += 1) yield chunk;
    yield frame(2, Buffer.from('after\n'));
  }
  let [taken, rest] = [0, ''];
  for await (const lines of readLogStream(source(), ALL)) {
    for (const { source: name, text } of lines) {
      if (name === 'stdout') taken += text.length;
      else rest += text;
    }
    // At most two chunks are held back.
    expect(given * chunk.length - taken).toBeLessThanOrEqual(2 * FRAME_BYTES);
  }
  expect([taken, rest]).toEqual([count * chunk.length, 'after\n']);
});

test('frames of other sources, before the position, without a time or without text are skipped', async () => {
  const frames = [
    frame(1, Buffer.from('early'), '2026-01-31T12:00:00.123456788Z'),
    frame(1, Buffer.from('late')),
    frame(2, Buffer.from('other')),
    frame(1, Buffer.alloc(0)),
    Buffer.from([1, 0, 0, 0, 0, 0, 0, 3, 0x61, 0x62, 0x63]),
    Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]),
    frame(1, Buffer.from('r\n')),
  ];
  const after = { stdout: { nanos: nanosOf(TS) - 1n, bytes: Infinity } };
  const texts = await textsOf([Buffer.concat(frames)], { sources: new Set(['stdout']), after });
  expect(texts).toEqual({ stdout: 'later\n', stderr: '' });
});

test.each([
  ['1970-01-01T00:00:01.000000002Z', 1_000_000_002n],
  ['1970-01-01T00:00:01.000000003Z', 1_000_000_003n],
  ['1970-01-01T00:00:02.5Z', 2_500_000_000n],
  ['1970-01-01T01:00:02.123456789+01:00', 2_123_456_789n],
  ['1970-01-01T00:00:01.00000000xZ', 0n],
  ['', 0n],
])('the time %s is %d nanoseconds', (ts, nanos) => {
  expect(nanosOf(ts)).toBe(nanos);
});
