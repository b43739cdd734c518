import fc from 'fast-check';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { redactEmail } from '../../src/audit/events/redact-email.js';
import { toBase62 } from '../../src/lib/base62.js';
import { Cursors } from '../../src/lib/cursor.js';
import { makeDirectories } from '../../src/lib/directories.js';
import { numberedLines, type NumberedLine } from '../../src/lib/lines.js';
import { toPage } from '../../src/lib/page.js';
import { findUnstorable, isDeeperThan } from '../../src/lib/storable-text.js';
import { collectGarbage } from '../support/held-memory.js';

describe('directories', () => {
  test('are created with their parents, once', () => {
    const root = mkdtempSync(join(tmpdir(), 'sandkeep-lib-'));
    const path = join(root, 'a', 'b', 'c');
    expect(makeDirectories(path, 0o700)).toBe(join(root, 'a'));
    expect(statSync(path).mode & 0o777).toBe(0o700);
    expect(makeDirectories(path, 0o711)).toBeUndefined();
    writeFileSync(join(path, 'file'), '');
    expect(() => makeDirectories(join(path, 'file'), 0o700)).toThrow(/EEXIST/);
    // Node 20 names the path, Node 24 the file.
    expect(() => makeDirectories(join(path, 'file', 'below'), 0o700)).toThrow(/ENOTDIR|EEXIST/);
    rmSync(root, { recursive: true });
  });

  test.runIf(existsSync('/proc/self'))('are refused where a file system cannot hold them', () => {
    expect(() => makeDirectories('/proc/nowhere/below', 0o700)).toThrow(/ENOENT/);
  });
});

describe('lines', () => {
  async function linesOf(chunks: readonly Uint8Array[], longest = 1000): Promise<NumberedLine[]> {
    async function* stream(): AsyncGenerator<Buffer> {
      for (const chunk of chunks) yield Buffer.from(chunk);
      await Promise.resolve();
    }
    const lines: NumberedLine[] = [];
    for await (const line of numberedLines(stream(), longest)) lines.push(line);
    return lines;
  }

  function cut(bytes: Uint8Array, at: readonly number[]): Uint8Array[] {
    const places = [
      0,
      ...at.map((place) => place % (bytes.length + 1)).toSorted((a, b) => a - b),
      bytes.length,
    ];
    return places.slice(1).map((place, index) => bytes.subarray(places[index], place));
  }

  const anyLine = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 8 }),
    fc.constantFrom('', '\r', ' ', 'größe ☃ 𝒳', '\u2028'),
  );

  test('are the same for any chunks of the bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anyLine), fc.boolean(), fc.array(fc.nat()), async (lines, ended, cuts) => {
        const clean = lines.map((text) => text.replaceAll(/[\n\ufeff]/g, ''));
        const text = clean.join('\n') + (ended ? '\n' : '');
        const expected = text.split('\n');
        if (expected.at(-1) === '') expected.pop();
        expect(await linesOf(cut(Buffer.from(text), cuts))).toEqual(
          expected.map((line, index) => ({ number: index + 1, text: line })),
        );
      }),
    );
  });

  test('are text, not UTF-8, or too long for any bytes', async () => {
    const anyByte = fc.oneof(fc.nat(255), fc.constant(10), fc.constant(65));
    await fc.assert(
      fc.asyncProperty(fc.array(anyByte), fc.array(fc.nat()), fc.nat(6), async (values, cuts, longest) => {
        const bytes = Buffer.from(values);
        const parts: Buffer[] = [];
        for (let from = 0; from < bytes.length;) {
          const end = bytes.indexOf(10, from);
          parts.push(bytes.subarray(from, end === -1 ? bytes.length : end));
          from = end === -1 ? bytes.length : end + 1;
        }
        const expected = parts.map((part, index) => {
          const number = index + 1;
          if (part.length > longest) return { number, fault: 'too long' };
          const text = part.toString();
          if (!Buffer.from(text).equals(part)) return { number, fault: 'not UTF-8' };
          return { number, text: text.replace(/^\ufeff/, '') };
        });
        expect(await linesOf(cut(bytes, cuts), longest)).toEqual(expected);
      }),
      { numRuns: 500 },
    );
  });

  test('far above the limit are not held in memory', async () => {
    const chunks: WeakRef<ArrayBufferLike>[] = [];
    const held: number[] = [];
    async function* endless(): AsyncGenerator<Buffer> {
      for (let count = 1; count <= 512; count += 1) {
        const chunk = Buffer.alloc(1024 * 1024, 120);
        chunks.push(new WeakRef(chunk.buffer));
        yield chunk;
        if (count % 64 !== 0) continue;
        // A reference lasts until the end of the turn that has made it.
        await setImmediate();
        collectGarbage();
        held.push(chunks.filter((each) => each.deref() !== undefined).length);
      }
      yield Buffer.from('\nlast');
    }
    const lines: NumberedLine[] = [];
    for await (const line of numberedLines(endless(), 1024)) lines.push(line);
    expect(held).toHaveLength(8);
    expect(Math.max(...held)).toBeLessThan(8);
    expect(lines).toEqual([
      { number: 1, fault: 'too long' },
      { number: 2, text: 'last' },
    ]);
  });
});

describe('cursors', () => {
  const cursors = new Cursors(randomBytes(32));
  const anyPosition = fc.array(fc.string({ unit: 'grapheme' }), { minLength: 1, maxLength: 3 });
  const anyOwner = fc.uuid();
  const anyQuery = fc.jsonValue({ maxDepth: 2 });

  test('return the position they were made from', () => {
    fc.assert(
      fc.property(anyOwner, anyQuery, anyPosition, (owner, query, position) => {
        const cursor = cursors.encode(owner, query, position);
        expect(cursor).toMatch(/^[\w-]+$/);
        expect(cursors.decode(owner, query, cursor)).toEqual(position);
      }),
    );
  });

  test('with any bit changed, or cut or lengthened anywhere, are damaged', () => {
    fc.assert(
      fc.property(anyOwner, anyQuery, anyPosition, (owner, query, position) => {
        const cursor = cursors.encode(owner, query, position);
        const bytes = Buffer.from(cursor, 'base64url');
        for (let bit = 0; bit < bytes.length * 8; bit += 1) {
          const changed = Buffer.from(bytes);
          changed[bit >> 3]! ^= 1 << (bit & 7);
          expect(cursors.decode(owner, query, changed.toString('base64url'))).toBe('damaged');
        }
        for (let length = 0; length < cursor.length; length += 1) {
          expect(cursors.decode(owner, query, cursor.slice(0, length))).toBe('damaged');
        }
        for (const more of ['A', '=', ' ', '%', 'AAAA']) {
          expect(cursors.decode(owner, query, cursor + more)).toBe('damaged');
          expect(cursors.decode(owner, query, more + cursor)).toBe('damaged');
        }
      }),
      { numRuns: 30 },
    );
  });

  test('in another encoding of the same bytes are damaged, because each position has one text', () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const cursor = cursors.encode('owner', 'query', ['a', 'b']);
    for (let at = 0; at < cursor.length; at += 1) {
      for (const character of `${alphabet}+/=\n`) {
        const changed = cursor.slice(0, at) + character + cursor.slice(at + 1);
        if (changed !== cursor) expect(cursors.decode('owner', 'query', changed)).toBe('damaged');
      }
    }
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(cursors.decode('owner', 'query', text)).toBe('damaged');
      }),
    );
  });

  test('from another owner or installation are damaged, from another query foreign', () => {
    fc.assert(
      fc.property(
        anyOwner,
        anyOwner,
        anyQuery,
        anyQuery,
        anyPosition,
        (owner, other, query, another, position) => {
          fc.pre(owner !== other && JSON.stringify(query) !== JSON.stringify(another));
          const cursor = cursors.encode(owner, query, position);
          expect(cursors.decode(other, query, cursor)).toBe('damaged');
          expect(cursors.decode(other, another, cursor)).toBe('damaged');
          expect(cursors.decode(owner, another, cursor)).toBe('foreign');
          expect(new Cursors(randomBytes(32)).decode(owner, query, cursor)).toBe('damaged');
        },
      ),
    );
  });
});

describe('the search for text that PostgreSQL cannot store', () => {
  const anyClean = fc.jsonValue().filter((value) => !/\\u(0000|d[89a-f])/.test(JSON.stringify(value)));
  const unstorable = fc.constantFrom('\0', 'a\0b', '\ud83d', '\ude00', 'x\ud83dy', '\ude00\ud83d');

  test('finds nothing in valid values', () => {
    fc.assert(
      fc.property(anyClean, (value) => {
        expect(findUnstorable(value)).toBeUndefined();
      }),
    );
    expect(findUnstorable({ a: ['😀', '\u0001', '\uffff', 1, null, true] })).toBeUndefined();
  });

  test('finds it at any depth, and names it by its path', () => {
    const anyStep = fc.oneof(fc.nat(3), fc.stringMatching(/^[a-z]{1,3}$/));
    fc.assert(
      fc.property(fc.array(anyStep, { maxLength: 6 }), unstorable, anyClean, (path, text, beside) => {
        const value = path.reduceRight<unknown>(
          (inner, step) =>
            typeof step === 'number'
              ? [...Array.from({ length: step }, () => beside), inner]
              : { _: beside, [step]: inner },
          text,
        );
        const expected = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('');
        expect(findUnstorable(value)).toBe(expected.replace(/^\./, ''));
      }),
    );
  });

  test('finds it in a key, and ends the path at its object', () => {
    fc.assert(
      fc.property(unstorable, (key) => {
        expect(findUnstorable({ [key]: 1 })).toBe('');
        expect(findUnstorable({ a: [{ b: { [key]: 1 } }] })).toBe('a[0].b');
      }),
    );
  });
});

test('the depth check of a value stops at the limit', () => {
  const nest = (levels: number, value: unknown): unknown =>
    Array.from({ length: levels }).reduce<unknown>(
      (inner, _, level) => (level % 2 ? [0, inner] : { a: 1, b: inner }),
      value,
    );
  fc.assert(
    fc.property(fc.nat(40), fc.nat(40), (levels, allowed) => {
      expect(isDeeperThan(nest(levels, 'x'), allowed)).toBe(levels > allowed);
    }),
  );
  expect(isDeeperThan(nest(100_000, null), 64)).toBe(true);
});

describe('pages', () => {
  test('cover a list without a gap or a repetition, and the last one ends it', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.integer()), fc.integer({ min: 1, max: 7 }), (list, limit) => {
        const seen: number[] = [];
        let from = 0;
        for (let pages = 1; ; pages += 1) {
          const rows = list.slice(from, from + limit + 1);
          const page = toPage(
            rows,
            limit,
            (row) => ({ row }),
            (row) => `after ${row}`,
          );
          seen.push(...page.data.map(({ row }) => row));
          expect(page.data.length).toBeLessThanOrEqual(limit);
          if (!page.has_more) {
            expect(page.next_cursor).toBeNull();
            expect(pages).toBe(Math.max(1, Math.ceil(list.length / limit)));
            break;
          }
          expect(page.next_cursor).toBe(`after ${seen.at(-1)}`);
          from = list.indexOf(Number(page.next_cursor!.slice(6))) + 1;
        }
        expect(seen).toEqual(list);
      }),
    );
  });
});

describe('redacted addresses', () => {
  test.each([
    ['alice@example.com', 'a***e@e***.com'],
    ['Bob.Smith+tag@mail.example.co.uk', 'B***g@m***.uk'],
    ['al@example.com', '***@e***.com'],
    ['a@example.com', '***@e***.com'],
    ['@example.com', '***@e***.com'],
    ['alice@localhost', 'a***e@l***'],
    ['alice@', 'a***e@***'],
    ['"odd@local"@example.com', '"***"@e***.com'],
    ['a*b@example.com', 'a***b@e***.com'],
    ['😀lic😀@😀xample.com', '😀***😀@😀***.com'],
    ['a***e@e***.com', 'a***e@e***.com'],
    ['al*****@example.com', 'al*****@example.com'],
    ['no address', 'no address'],
    ['', ''],
  ])('%s becomes %s', (address, redacted) => {
    expect(redactEmail(address)).toBe(redacted);
  });

  test('show neither the name nor the host, stay the same when redacted again, and can be stored', () => {
    const anyPart = fc
      .string({ unit: 'grapheme', minLength: 3, maxLength: 20 })
      .filter((text) => !/[*@.]/.test(text));
    fc.assert(
      fc.property(anyPart, anyPart, fc.constantFrom('com', 'org', 'example'), (local, host, end) => {
        fc.pre([local, host].every((part) => Array.from(part).length > 2));
        const redacted = redactEmail(`${local}@${host}.${end}`);
        const shown = redacted.slice(0, -end.length);
        expect(shown).not.toContain(local);
        expect(shown).not.toContain(host);
        expect(redacted.isWellFormed()).toBe(true);
        expect(redacted.endsWith(`.${end}`)).toBe(true);
        expect(redactEmail(redacted)).toBe(redacted);
      }),
    );
  });
});

test('base 62 writes every number in one way, in numeric order', () => {
  const most = 62 ** 6 - 1;
  fc.assert(
    fc.property(fc.nat(most), fc.nat(most), (a, b) => {
      const text = toBase62(a, 6);
      expect(text).toMatch(/^[0-9A-Za-z]{6}$/);
      expect(text < toBase62(b, 6)).toBe(a < b);
      const value = Array.from(text).reduce((sum, character) => {
        const code = character.charCodeAt(0);
        return sum * 62 + (code < 58 ? code - 48 : code < 91 ? code - 55 : code - 61);
      }, 0);
      expect(value).toBe(a);
    }),
  );
  expect([toBase62(0, 6), toBase62(most, 6)]).toEqual(['000000', 'zzzzzz']);
});
