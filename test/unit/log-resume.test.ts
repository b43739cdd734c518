import { expect, test } from 'vitest';
import { readLogStream, sinceOf } from '../../src/engines/docker/log-stream.js';
import { readPodLog } from '../../src/engines/kubernetes/logs.js';
import { nanosOf } from '../../src/engine/log-times.js';
import type { LogChunk, LogQuery } from '../../src/engine/runtime.js';
import { decodeCursor, encodeCursor } from '../../src/sandboxes/logs/cursor.js';

const ENGINE_PART = 16 * 1024;
const CUT = '\x1f\n';
const SOURCES = new Set(['stdout', 'stderr'] as const);
const STREAMS = ['stdout', 'stderr'] as const;
type Source = (typeof STREAMS)[number];
/** A record of the engine. */
interface Piece {
  source: Source;
  ts: string;
  data: Buffer;
}
type Read = (pieces: Piece[], after: LogQuery['after']) => Promise<LogChunk[]>;

function random(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** Lines that share times, that the engine divided at any byte, and that process 1 divided at characters. */
function makeLog(below: (limit: number) => number, sources: readonly Source[]): Piece[] {
  const log: Piece[] = [];
  let nanos = 1_000_000_000n * BigInt(below(2_000_000_000));
  const tick = () => (nanos += BigInt(below(3) === 0 ? below(2_000_000_000) : below(3)));
  const tsOf = () => {
    const second = new Date(Number(nanos / 1_000_000_000n) * 1_000).toISOString().slice(0, 19);
    return `${second}.${String(nanos % 1_000_000_000n).padStart(9, '0')}Z`;
  };
  for (let line = 0; line < 25; line += 1) {
    const source = sources[below(sources.length)]!;
    const sample = ['y', 'grüße 🙂 €', 'x\x1f', '\xff\xc3(\x80\x1f'][below(4)]!;
    const size = below(4) === 0 ? below(4 * ENGINE_PART) : below(60);
    const text = Buffer.from(sample.repeat(1 + size / sample.length), line % 5 === 0 ? 'latin1' : 'utf8');
    tick();
    if (below(2) === 0) {
      // An earlier process 1, which added nothing.
      const whole = Buffer.concat([text.map((byte) => (byte === 0x1f ? 0x2e : byte)), Buffer.from('\n')]);
      for (let at = 0; at < whole.length; at += ENGINE_PART)
        log.push({ source, ts: tsOf(), data: whole.subarray(at, at + ENGINE_PART) });
    } else {
      const whole = text.toString();
      const parts: string[] = whole.match(/[^]{1,5000}/gu) ?? [];
      if (whole.endsWith('\x1f')) parts.push('');
      for (const [index, part] of parts.entries()) {
        const end = index === parts.length - 1 ? '\n' : CUT;
        log.push({ source, ts: tsOf(), data: Buffer.from(part + end) });
        tick();
      }
    }
  }
  return log;
}

function chunksOf(bytes: Buffer, below: (limit: number) => number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + below(below(2) === 0 ? 600 : 40_000);
    chunks.push(bytes.subarray(at, at + size));
    at += size;
  }
  return chunks;
}

async function all(lines: AsyncIterable<Iterable<LogChunk>>): Promise<LogChunk[]> {
  const found: LogChunk[] = [];
  for await (const some of lines) found.push(...some);
  return found;
}

async function* from(chunks: Iterable<Buffer>) {
  yield* chunks;
}

function docker(below: (limit: number) => number): Read {
  return async (pieces, after) => {
    const since = nanosOfSeconds(sinceOf(after));
    const frames = pieces
      .filter(({ ts }) => nanosOf(ts) >= since)
      .map(({ source, ts, data }) => {
        const header = Buffer.alloc(8);
        header[0] = source === 'stdout' ? 1 : 2;
        header.writeUInt32BE(ts.length + 1 + data.length, 4);
        return Buffer.concat([header, Buffer.from(`${ts} `), data]);
      });
    return all(readLogStream(from(chunksOf(Buffer.concat(frames), below)), { sources: SOURCES, after }));
  };
}

/**
 * The cluster omits parts of a line before `since`, whole seconds, and writes the time in front of the first part that
 * is left.
 */
function kubernetes(below: (limit: number) => number): Read {
  return async (pieces, after) => {
    const since = ((after.stdout?.nanos ?? 0n) / 1_000_000_000n) * 1_000_000_000n;
    let begins = true;
    const bytes = pieces
      .filter(({ ts }) => nanosOf(ts) >= since)
      .flatMap(({ ts, data }) => {
        const prefix = begins ? [Buffer.from(`${ts} `)] : [];
        begins = data.at(-1) === 0x0a;
        return [...prefix, data];
      });
    return all(readPodLog(from(chunksOf(Buffer.concat(bytes), below)), after.stdout));
  };
}

function nanosOfSeconds(text: string): bigint {
  const [seconds, fraction] = text.split('.') as [string, string];
  return BigInt(seconds) * 1_000_000_000n + BigInt(fraction);
}

function textOf(chunks: LogChunk[], source: Source): string {
  return chunks
    .filter((chunk) => chunk.source === source)
    .map(({ text }) => text)
    .join('');
}

/** The places between two records of different times, where an engine may have removed all before. */
function rotationsOf(log: Piece[]): number[] {
  return log.flatMap(({ ts }, index) => (index > 0 && log[index - 1]!.ts !== ts ? [index] : []));
}

const engines: [string, (below: (limit: number) => number) => Read, readonly Source[]][] = [
  ['docker', docker, STREAMS],
  ['kubernetes', kubernetes, ['stdout']],
];

test.each(engines.flatMap((engine) => [1, 2, 3, 4].map((seed) => [...engine, seed] as const)))(
  'a reader of %s that continues at any event gets exactly the rest',
  async (_name, engine, sources, seed) => {
    const below = random(seed);
    const read = engine(below);
    const log = makeLog(below, sources);
    const whole = await read(log, {});
    for (const source of sources) {
      const written = Buffer.concat(log.filter((piece) => piece.source === source).map(({ data }) => data));
      expect(textOf(whole, source) === written.toString('utf8').replaceAll(CUT, '')).toBe(true);
    }
    const reached: LogQuery['after'] = {};
    for (const [index, { source, position }] of whole.entries()) {
      reached[source as Source] = position;
      const cursor = encodeCursor(reached);
      const rest = await read(log, decodeCursor(cursor));
      const rotations = rotationsOf(log);
      const first = rotations[below(rotations.length)]!;
      const kept = await read(log.slice(first), decodeCursor(cursor));
      for (const name of sources) {
        const expected = whole.slice(index + 1);
        expect(textOf(rest, name) === textOf(expected, name), `event ${index}`).toBe(true);
        const since = nanosOf(log[first]!.ts);
        const left = expected.filter(({ ts }) => nanosOf(ts) >= since);
        expect(textOf(kept, name) === textOf(left, name), `event ${index}, rotated`).toBe(true);
      }
    }
  },
);

test('a cursor of an earlier release continues after its time', () => {
  const earlier = Buffer.alloc(33);
  earlier[0] = 2;
  for (const at of [1, 17]) earlier.writeBigUInt64LE(1n, at);
  earlier.writeBigUInt64LE(1_234n, 9);
  expect(decodeCursor(earlier.toString('base64'))).toEqual({ stdout: { nanos: 1_234n, bytes: Infinity } });
});

test('a cursor has the positions of all streams', () => {
  const positions = {
    stdout: { nanos: 2n ** 62n, bytes: 2 ** 40 },
    stderr: { nanos: 1n, bytes: Infinity },
    system: { nanos: 5n, bytes: 1 },
  };
  expect(decodeCursor(encodeCursor(positions))).toEqual(positions);
  const { system: _, ...two } = positions;
  expect(decodeCursor(encodeCursor(two))).toEqual(two);
});

test('an error of a node in the answer of the cluster is no line of the log', async () => {
  const said = 'failed to try resolving symlinks in path "/var/log/pods/a/0.log": no such file or directory';
  const good = `2026-11-27T20:18:01.691315000Z one\n`;
  for (const answer of [said, `${said}\n`, `${good}${said}`]) {
    await expect(all(readPodLog(from([Buffer.from(answer)]), undefined))).rejects.toThrow(
      `the node cannot read the log: ${said}`,
    );
  }
});
