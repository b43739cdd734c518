import { encode } from 'cborg';
import { describe, expect, test } from 'vitest';
import {
  encodeEnvelope,
  EnvelopeReader,
  greeting,
  ProtocolError,
  type Envelope,
} from '../../src/sandboxes/agent/envelope.js';
import {
  BadPayload,
  readBytes,
  readInteger,
  readMaps,
  readText,
  readTexts,
  readUint64,
} from '../../src/sandboxes/agent/payload.js';
import { ACCEPTED, GREETING, SENT } from '../support/captured-frames.js';
import { cpuTime } from '../support/cpu-time.js';

const MIB = 1024 * 1024;

function decodeAll(...chunks: Buffer[]): Envelope[] {
  const reader = new EnvelopeReader();
  return chunks.flatMap((chunk) => [...reader.push(chunk)]);
}

/** The payload as an object, to compare it with a literal. */
function toObject(value: unknown): unknown {
  if (value instanceof Map) {
    return Object.fromEntries([...value].map(([key, item]) => [key as string, toObject(item)]));
  }
  if (Array.isArray(value)) return value.map(toObject);
  return value instanceof Uint8Array ? Buffer.from(value) : value;
}

/** A frame around any bytes. */
function frame(body: Uint8Array, { length = 5 + body.length, id = 1, flags = 0 } = {}): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt32BE(length, 0);
  head.writeUInt32BE(id, 4);
  head.writeUInt8(flags, 8);
  return Buffer.concat([head, body]);
}

const wrap = (payload: Uint8Array) => frame(encode({ v: 7, t: 'core.exec.request', p: payload }));

describe('frames captured from the official clients', () => {
  test('are decoded', () => {
    for (const { hex, id, flags, type, payload } of [...SENT, ...ACCEPTED]) {
      const [envelope] = decodeAll(Buffer.from(hex, 'hex'));
      expect({ ...envelope, payload: toObject(envelope!.payload) }).toEqual({
        id,
        flags,
        type,
        payload,
        size: hex.length / 2,
      });
    }
  });

  test('are encoded to the same bytes', () => {
    for (const { hex, id, flags, type, payload } of [...SENT, ...ACCEPTED]) {
      expect(encodeEnvelope(id, flags, type, payload).toString('hex')).toBe(hex);
    }
    expect(greeting('0.6.18').toString('hex')).toBe(GREETING);
  });

  test('arrive joined, in single bytes, and in chunks of every length', () => {
    const stream = Buffer.from(SENT.map(({ hex }) => hex).join(''), 'hex');
    const whole = decodeAll(stream);
    expect(whole).toHaveLength(SENT.length);
    for (const length of [1, 2, 3, 4, 5, 7, 64, 1000]) {
      const chunks = Array.from({ length: Math.ceil(stream.length / length) }, (_, index) =>
        stream.subarray(index * length, (index + 1) * length),
      );
      expect(decodeAll(...chunks)).toEqual(whole);
    }
  });

  test('have the generation of any client', () => {
    for (const v of [1, 2, 6, 7, 8, 200, null]) {
      const [envelope] = decodeAll(frame(encode({ v, t: 'core.ping', p: encode({}) })));
      expect(envelope!.type).toBe('core.ping');
    }
  });
});

describe('hostile frames', () => {
  const decoding = (bytes: Buffer) => () => decodeAll(bytes);

  test('are refused with an impossible length before their bytes arrive', () => {
    for (const length of [0, 4, 4 * MIB + 1, 0xffff_ffff])
      expect(decoding(frame(Buffer.alloc(0), { length }))).toThrow(ProtocolError);
    expect(decodeAll(frame(Buffer.alloc(0), { length: 4 * MIB }))).toEqual([]);
  });

  test('use memory for the bytes that have arrived only, and their envelope shares none with the next', () => {
    const data = Buffer.alloc(3 * MIB, 7);
    const bytes = encodeEnvelope(1, 0, 'core.exec.stdin', { data });
    const before = process.memoryUsage().arrayBuffers;
    const readers = Array.from({ length: 100 }, () => new EnvelopeReader());
    for (const reader of readers) expect([...reader.push(bytes.subarray(0, 1000))]).toEqual([]);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(MIB);
    const [envelope] = decodeAll(
      ...Array.from({ length: 3080 }, (_, n) => bytes.subarray(n * 1024, (n + 1) * 1024)),
    );
    bytes.fill(0);
    expect(readBytes(envelope!.payload, 'data').equals(data)).toBe(true);
  });

  test('that are not CBOR of the right shape are refused', () => {
    expect(decoding(frame(Buffer.from('ff', 'hex')))).toThrow(ProtocolError);
    expect(decoding(frame(Buffer.from('a3617607', 'hex')))).toThrow(ProtocolError);
    expect(decoding(frame(encode([1, 2])))).toThrow(ProtocolError);
    expect(decoding(frame(encode({ v: 7, t: 'core.ping' })))).toThrow(ProtocolError);
    expect(decoding(frame(encode({ v: 7, t: 7, p: encode({}) })))).toThrow(ProtocolError);
    expect(decoding(frame(encode({ v: 7, t: 'core.ping', p: 'text' })))).toThrow(ProtocolError);
    expect(decoding(wrap(encode([])))).toThrow(ProtocolError);
    expect(decoding(wrap(Buffer.from('a2616101616102', 'hex')))).toThrow(ProtocolError);
    expect(decoding(wrap(Buffer.from('c1f6', 'hex')))).toThrow(ProtocolError);
  });

  test('with deep nesting, many values or many keys are refused at once', async () => {
    const taken = await cpuTime(() => {
      expect(
        decoding(wrap(Buffer.concat([Buffer.from('a16161', 'hex'), Buffer.alloc(4 * MIB - 200, 0x81)]))),
      ).toThrow(ProtocolError);
      expect(
        decoding(wrap(Buffer.concat([Buffer.from('a161619f', 'hex'), Buffer.alloc(4 * MIB - 200, 0xf6)]))),
      ).toThrow(ProtocolError);
      const keys = Buffer.alloc(4_000_000);
      for (let at = 0; at < keys.length; at += 5) {
        keys.writeUInt8(0x1a, at);
        keys.writeUInt32BE(at, at + 1);
      }
      expect(decoding(wrap(Buffer.concat([Buffer.from('bf', 'hex'), keys])))).toThrow(ProtocolError);
    });
    // Without the limit, each of them takes longer than this.
    expect(taken).toBeLessThan(5_000);
  });

  test('name their fault in a few words', () => {
    const key = encode('k'.repeat(MIB));
    const twice = wrap(Buffer.concat([Buffer.from('a2', 'hex'), key, encode(1), key, encode(2)]));
    expect(() => decodeAll(twice)).toThrow(/^.{20,300}$/);
  });
});

describe('the fields of a payload', () => {
  const field = (value: unknown) => new Map([['field', value]]);

  test('are integers within limits', () => {
    expect(readInteger(field(7), 'field', 0, 7)).toBe(7);
    for (const value of [-1, 8, 1.5, Number.NaN, Infinity, 7n, '7', null, undefined, true]) {
      expect(() => readInteger(field(value), 'field', 0, 7)).toThrow(BadPayload);
    }
    expect(readUint64(field((1n << 64n) - 1n), 'field')).toBe((1n << 64n) - 1n);
    for (const value of [-1, -1n, 1n << 64n, 2 ** 64, 1e300, 0.5, Number.NaN, '7', null]) {
      expect(() => readUint64(field(value), 'field')).toThrow(BadPayload);
    }
  });

  test('are texts without NUL, of a limited length', () => {
    expect(readTexts(field(['a', 'ü']), 'field')).toEqual(['a', 'ü']);
    expect(readTexts(new Map(), 'field')).toEqual([]);
    for (const value of ['a\0b', 'a'.repeat(200_000), 7, null, ['a']])
      expect(() => readText(field(value), 'field')).toThrow(BadPayload);
    for (const value of ['a', [7], [['a']], [null]])
      expect(() => readTexts(field(value), 'field')).toThrow(BadPayload);
    for (const value of [{}, [7], ['a'], [[]]])
      expect(() => readMaps(field(value), 'field')).toThrow(BadPayload);
  });

  test('are bytes, or a list of them', () => {
    expect(readBytes(field(new Uint8Array([1, 255])), 'field')).toEqual(Buffer.from([1, 255]));
    expect(readBytes(field([1, 255]), 'field')).toEqual(Buffer.from([1, 255]));
    for (const value of ['text', [256], [-1], [0.5], ['1'], null, 7, new Map()]) {
      expect(() => readBytes(field(value), 'field')).toThrow(BadPayload);
    }
  });
});
