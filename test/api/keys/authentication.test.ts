import fc from 'fast-check';
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { KeyCache } from '../../../src/access/key-cache.js';
import { isWellFormedKey, makeKey } from '../../../src/access/key-secret.js';
import { operator } from '../../../src/audit/events/actor.js';
import { openPool } from '../../../src/db/pool.js';
import { createKey } from '../../../src/keys/create.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import type { Client } from '../../support/client.js';
import { operations } from '../../support/openapi.js';
import { startTestService, type TestService } from '../../support/service.js';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const UNAUTHORIZED = '{"error":{"code":"invalid_api_key","message":"unauthorized","details":null}}';
const WITHOUT_KEY =
  '{"error":{"code":"invalid_api_key","message":"unauthorized","details":{"header":"Authorization","expected":"Bearer <API key>"}}}';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

/** CRC-32 by its definition: the remainder of the bits, lowest first, by the polynomial 0x04C11DB7. */
function crc32(text: string): number {
  let remainder = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    remainder ^= byte;
    for (let bit = 0; bit < 8; bit += 1) {
      remainder = remainder & 1 ? (remainder >>> 1) ^ 0xedb88320 : remainder >>> 1;
    }
  }
  return (remainder ^ 0xffffffff) >>> 0;
}

function inBase62(value: number): string {
  const digits = Array.from(
    { length: 6 },
    (_, place) => ALPHABET[Math.floor(value / 62 ** (5 - place)) % 62],
  );
  return digits.join('');
}

function withChecksum(body: string): string {
  return body + inBase62(crc32(body));
}

describe('the format of a key', () => {
  test('is skp_, 32 random characters, and the CRC-32 of both in six characters', () => {
    expect(crc32('123456789')).toBe(0xcbf43926);
    for (let count = 0; count < 2000; count += 1) {
      const key = makeKey();
      expect(key).toMatch(/^skp_[0-9A-Za-z]{38}$/);
      expect(key).toBe(withChecksum(key.slice(0, 36)));
      expect(isWellFormedKey(key)).toBe(true);
    }
  });

  test('has exactly one valid checksum for any body', () => {
    const anyBody = fc.array(fc.constantFrom(...ALPHABET.split('')), { minLength: 32, maxLength: 32 });
    fc.assert(
      fc.property(anyBody, fc.nat(62 ** 6 - 1), (body, other) => {
        const text = `skp_${body.join('')}`;
        expect(isWellFormedKey(withChecksum(text))).toBe(true);
        expect(isWellFormedKey(text + inBase62(other))).toBe(other === crc32(text));
      }),
    );
    // A body whose CRC-32 needs leading zeros.
    const small = Array.from(
      { length: 200_000 },
      (_, index) => `skp_${String(index).padStart(32, '0')}`,
    ).find((text) => crc32(text) < 62 ** 4)!;
    expect(withChecksum(small)).toMatch(/00\w{4}$/);
    expect(isWellFormedKey(withChecksum(small))).toBe(true);
  });

  test('has every character equally likely at every place', () => {
    const counts = new Map<string, number>();
    for (let count = 0; count < 2000; count += 1) {
      for (const character of makeKey().slice(4, 36)) counts.set(character, (counts.get(character) ?? 0) + 1);
    }
    expect(counts.size).toBe(62);
    // 64,000 characters, some 1032 of each: six standard deviations are 192.
    for (const count of counts.values()) expect(Math.abs(count - 64_000 / 62)).toBeLessThan(192);
  });

  test('rejects a key with one character changed, lost, doubled or swapped with the next', () => {
    const key = makeKey();
    for (let at = 0; at < key.length; at += 1) {
      const [before, after] = [key.slice(0, at), key.slice(at + 1)];
      for (const character of `${ALPHABET}_- é\n`) {
        const changed = before + character + after;
        expect([changed, isWellFormedKey(changed)]).toEqual([changed, changed === key]);
      }
      expect(isWellFormedKey(before + after)).toBe(false);
      expect(isWellFormedKey(before + key[at]! + key[at]! + after)).toBe(false);
      if (at < 35 && key[at] !== key[at + 1]) {
        expect(isWellFormedKey(before + key[at + 1]! + key[at]! + key.slice(at + 2))).toBe(false);
      }
    }
    for (const framed of [` ${key}`, `${key} `, `${key}\n`, `${key}${key}`, key.toLowerCase(), '']) {
      expect(isWellFormedKey(framed)).toBe(false);
    }
  });

  test('lets the service refuse an impossible key without a query', async () => {
    const unreachable = openPool(service.database, () => undefined);
    await unreachable.end();
    const keys = new KeyCache(unreachable, service.ctx.changes);
    const damaged = client.key.slice(0, -1) + (client.key.endsWith('0') ? '1' : '0');
    expect(await keys.find(damaged, '192.0.2.1')).toBeUndefined();
    expect(await keys.find('', '192.0.2.1')).toBeUndefined();
    await expect(keys.find(client.key, '192.0.2.1')).rejects.toThrow(/after calling end/);
    keys.close();
  });
});

describe('a request with an invalid key', () => {
  const swapCase = (text: string) =>
    text.replaceAll(/[a-zA-Z]/g, (letter) =>
      letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
    );

  async function badHeaders(): Promise<Record<string, string | undefined>> {
    const { key } = client;
    const { id, key: revoked } = await createKey(
      service.ctx.pool,
      client.org.id,
      'revoked',
      operator('test'),
    );
    await revokeKey(service.ctx.pool, id, operator('test'));
    const lookalike = withChecksum(key.slice(0, 12) + makeKey().slice(12, 36));
    return {
      missing: undefined,
      empty: '',
      'the scheme alone': 'Bearer',
      'no scheme': key,
      'another scheme': `Basic ${Buffer.from(`${key}:`).toString('base64')}`,
      'a scheme that only begins alike': `Bearers ${key}`,
      'two keys': `Bearer ${key} ${key}`,
      'a key and more': `Bearer ${key},`,
      'not a key': 'Bearer token',
      'another prefix': `Bearer msb_${key.slice(4)}`,
      'a wrong checksum': `Bearer ${key.slice(0, -6)}000000`,
      'another case': `Bearer ${withChecksum(`skp_${swapCase(key.slice(4, 36))}`)}`,
      unknown: `Bearer ${makeKey()}`,
      'unknown, with the public beginning of a known one': `Bearer ${lookalike}`,
      revoked: `Bearer ${revoked}`,
      'quoting SQL': `Bearer skp_'; drop table orgs; --`,
      'very long': `Bearer ${'x'.repeat(8000)}`,
    };
  }

  async function ask(method: string, path: string, authorization: string | undefined) {
    const response = await fetch(`${service.url}${path}`, {
      method,
      headers: authorization === undefined ? {} : { authorization },
    });
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  test('gets the same bytes on every route for every fault, except that a missing key names the header', async () => {
    const paths = operations
      .filter(({ path }) => path.startsWith('/v1/'))
      .map(({ path, method }) => ({
        method,
        path: path.replaceAll(/\{\w+\}/g, '0190e5a0-0000-7000-8000-000000000000'),
      }));
    expect(paths.length).toBeGreaterThanOrEqual(7);
    for (const [name, header] of Object.entries(await badHeaders())) {
      for (const { method, path } of paths) {
        const { status, headers, text } = await ask(method, path, header);
        const expected = /^Bearer +\S+ *$/i.test(header ?? '') ? UNAUTHORIZED : WITHOUT_KEY;
        expect([name, method, path, status, text]).toEqual([name, method, path, 401, expected]);
        expect(headers.get('content-type')).toBe('application/json; charset=utf-8');
        expect(headers.get('www-authenticate')).toBe('Bearer');
        expect(headers.get('x-request-id')).toBeTruthy();
      }
    }
  });

  test('is refused before any other check of the request', async () => {
    for (const path of [
      '/v1/sandboxes/not-a-uuid',
      '/v1/events?limit=1000&nonsense',
      '/v1/billing/usage/sandbox?since=x',
    ]) {
      expect((await ask('GET', path, `Bearer ${makeKey()}`)).text).toBe(UNAUTHORIZED);
    }
    const response = await fetch(`${service.url}/v1/sandboxes`, { method: 'POST', body: '{broken' });
    expect([response.status, await response.text()]).toEqual([401, WITHOUT_KEY]);
  });

  test('is refused, while a valid key works with the scheme in any case', async () => {
    for (const scheme of ['Bearer', 'bearer', 'BEARER', 'Bearer  ']) {
      const { status } = await ask('GET', '/v1/sandboxes', `${scheme} ${client.key}`);
      expect([scheme, status]).toEqual([scheme, 200]);
    }
  });

  test("is refused within a second of the key's revocation", async () => {
    const { id, key } = await createKey(service.ctx.pool, client.org.id, 'short', operator('test'));
    expect((await ask('GET', '/v1/sandboxes', `Bearer ${key}`)).status).toBe(200);
    const at = await revokeKey(service.ctx.pool, id, operator('test'));
    const revoked = performance.now();
    let text: string;
    let begun: number;
    // A notification invalidates the cached key. Every later request is refused.
    do {
      begun = performance.now();
      ({ text } = await ask('GET', '/v1/sandboxes', `Bearer ${key}`));
    } while (text !== UNAUTHORIZED && begun < revoked + 1_000);
    expect(text).toBe(UNAUTHORIZED);
    expect(await revokeKey(service.ctx.pool, id, operator('test'))).toBe(at);
    const { body } = await client.get('/v1/events', { event_type: 'api_key_revoked', resource_id: id });
    expect(body.data).toHaveLength(1);
  });
});

describe('the stored form of a key', () => {
  test('is its SHA-256 and its first twelve characters, and the key itself is stored nowhere', async () => {
    const { id, key } = await createKey(service.ctx.pool, client.org.id, 'canary', operator('test'));
    const answer = await client.request('GET', '/v1/events', { key });
    await client.request('GET', '/v1/sandboxes/x', { key });
    await client.request('POST', '/v1/sandboxes', { key, body: { name: '-' } });
    expect(answer.text).toContain(key.slice(0, 12));
    expect(answer.text).not.toContain(key.slice(0, 13));

    const { pool } = service.ctx;
    const { rows: stored } = await pool.query('select prefix, hash from api_keys where id = $1', [id]);
    expect(stored).toEqual([{ prefix: key.slice(0, 12), hash: createHash('sha256').update(key).digest() }]);

    const { rows: tables } = await pool.query<{ name: string }>(
      `select quote_ident(table_name) as name from information_schema.tables where table_schema = 'public'`,
    );
    expect(tables.length).toBeGreaterThan(8);
    const secret = key.slice(12, 36);
    for (const { name } of tables) {
      const { rows } = await pool.query<{ row: string }>(`select t::text as row from ${name} t`);
      const text = rows.map(({ row }) => row).join('\n');
      for (const form of [
        secret,
        Buffer.from(secret).toString('hex'),
        Buffer.from(secret).toString('base64'),
      ]) {
        expect([name, text.includes(form)]).toEqual([name, false]);
      }
    }
    expect(service.logs.length).toBeGreaterThan(0);
    expect(service.logs.join('')).not.toContain(key.slice(4, 16));
  });

  test('allows two keys of the same name', async () => {
    const [one, two] = await Promise.all(
      [1, 2].map(() => createKey(service.ctx.pool, client.org.id, 'same name', operator('test'))),
    );
    expect(one!.key).not.toBe(two!.key);
    await revokeKey(service.ctx.pool, one!.id, operator('test'));
    expect((await client.request('GET', '/v1/sandboxes', { key: one!.key })).status).toBe(401);
    expect((await client.request('GET', '/v1/sandboxes', { key: two!.key })).status).toBe(200);
  });
});
