import { BlockList } from 'node:net';
import { beforeEach, describe, expect, test, vi } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { KeyCache } from '../../../src/access/key-cache.js';
import { makeKey } from '../../../src/access/key-secret.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { TestService } from '../../support/service.js';
import { useTwoServices } from '../../support/two-services.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until } from '../../support/polling.js';

const its = useTwoServices();
let key: string;
let keyId: string;

beforeEach(async () => {
  ({ id: keyId, key } = await createKey(its.first.ctx.pool, its.client.org.id, 'watched', operator('test')));
  expect([await ask(its.first), await ask(its.second)]).toEqual([200, 200]);
});

/** Requests that are in progress when their key is revoked are cut off. */
async function ask(service: TestService): Promise<number | 'cut off'> {
  const headers = { authorization: `Bearer ${key}` };
  return fetch(`${service.url}/v1/me/org`, { headers }).then(
    ({ status }) => status,
    () => 'cut off',
  );
}

/** The listening connections of both services. */
const LISTENING = `datname = current_database() and query like 'listen%'`;

/**
 * Repeats requests until one gets this status. Returns when the last request with another status was sent, in
 * milliseconds.
 */
async function lastOther(service: TestService, refused = 401): Promise<number> {
  const began = performance.now();
  let last = 0;
  await until(
    async () => {
      const asked = performance.now() - began;
      const status = await ask(service);
      if (status !== refused) last = asked;
      return status;
    },
    (status) => status === refused,
    30_000,
  );
  return last;
}

describe('a cached key', () => {
  test('costs less than one query a request', async () => {
    const looks: string[] = [];
    const { pool } = its.second.ctx;
    const query = pool.query.bind(pool);
    pool.query = ((...args: Parameters<typeof query>) => {
      if (args[0].includes('api_key_replaced_secrets')) looks.push('look');
      return query(...args);
    }) as typeof pool.query;
    await ask(its.second);
    const began = performance.now();
    for (let count = 0; count < 50; count += 1) await ask(its.second);
    const seconds = (performance.now() - began) / 1000;
    pool.query = query;
    expect(looks.length).toBeLessThanOrEqual(2 + Math.ceil(seconds / 0.9));
    expect(looks.length).toBeLessThan(50);
  });

  test('survives refused requests, and concurrent misses share a query', async () => {
    const { pool } = its.second.ctx;
    const query = pool.query.bind(pool);
    let [looks, answered] = [0, 0];
    pool.query = ((...args: Parameters<typeof query>) => {
      if (args[0].includes('api_key_replaced_secrets')) looks += 1;
      return query(...args);
    }) as typeof pool.query;
    const nobody = { method: 'POST', headers: { authorization: `Bearer ${key.slice(0, -1)}` } };
    try {
      const began = performance.now();
      for (let round = 0; round < 20; round += 1) {
        expect((await fetch(`${its.second.url}/v1/keys`, nobody)).status).toBe(401);
        const statuses = await Promise.all(Array.from({ length: 10 }, () => ask(its.second)));
        answered += statuses.filter((status) => status === 200).length;
      }
      const seconds = (performance.now() - began) / 1000;
      expect(answered).toBe(200);
      expect(looks).toBeLessThanOrEqual(1 + Math.ceil(seconds / 0.9));
    } finally {
      pool.query = query;
    }
  });

  test('has its networks read once while it is cached', async () => {
    const cidrs = Array.from({ length: 100 }, (_, index) => `10.${index}.0.0/16`);
    const access = { ...FULL_ACCESS, cidrs: [...cidrs, '127.0.0.0/8'] };
    ({ key } = await createKey(its.first.ctx.pool, its.client.org.id, 'near', operator('test'), access));
    const read = vi.spyOn(BlockList.prototype, 'addSubnet');
    try {
      const began = performance.now();
      for (let count = 0; count < 50; count += 1) expect(await ask(its.second)).toBe(200);
      const seconds = (performance.now() - began) / 1000;
      expect(read.mock.calls.length).toBeLessThanOrEqual(101 * (2 + Math.ceil(seconds / 0.9)));
      expect(read.mock.calls.length).toBeLessThan(101 * 50);
    } finally {
      read.mockRestore();
    }
  });

  test('is still known when it is cached no longer, and an unknown key is not', async () => {
    const { pool, changes } = its.first.ctx;
    const keys = new KeyCache(pool, changes);
    const unknown = makeKey();
    for (const each of [key, unknown]) await keys.find(each, 'network');
    keys.invalidate();
    expect(keys.cached(key)).toBeUndefined();
    expect([keys.seen(key)?.org_id, keys.seen(unknown)]).toEqual([its.client.org.id, undefined]);
    keys.close();
  });

  test('is refused by the other process within a second of its revocation', async () => {
    await revokeKey(its.first.ctx.pool, keyId, operator('test'));
    expect(await lastOther(its.second)).toBeLessThan(1_000);
  });

  test('is refused at once by the process that revoked it', async () => {
    const answer = await its.client.delete(`/v1/keys/${keyId}`);
    expect([answer.status, await ask(its.first)]).toEqual([200, 401]);
  });

  test('is refused by all processes after a manual revocation in the database', async () => {
    await its.first.ctx.pool.query('update api_keys set revoked_at = now() where id = $1', [keyId]);
    const [one, two] = await Promise.all([lastOther(its.first), lastOther(its.second)]);
    expect([one < 1_000, two < 1_000]).toEqual([true, true]);
  });

  test('has its narrower access at once after a manual change in the database', async () => {
    await its.first.ctx.pool.query(`update api_keys set cidrs = '{10.0.0.0/8}' where id = $1`, [keyId]);
    expect(await lastOther(its.second, 403)).toBeLessThan(1_000);
  });
});

describe('while the connection for notifications is down', () => {
  test('a revoked key is refused at once, because keys are not cached', async () => {
    const { rowCount } = await its.first.ctx.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where ${LISTENING}`,
    );
    expect(rowCount).toBeGreaterThanOrEqual(2);
    await until(
      async () => Promise.resolve(its.second.ctx.changes.live || its.first.ctx.changes.live),
      (live) => !live,
    );
    await revokeKey(its.first.ctx.pool, keyId, operator('test'));
    expect([await ask(its.first), await ask(its.second)]).toEqual([401, 401]);
  });

  test('keys cached earlier are dropped when it returns', async () => {
    for (let round = 0; round < 3; round += 1) {
      const { id, key: each } = await createKey(
        its.first.ctx.pool,
        its.client.org.id,
        'round',
        operator('test'),
      );
      key = each;
      expect(await ask(its.second)).toBe(200);
      await its.first.ctx.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where ${LISTENING}`,
      );
      await revokeKey(its.first.ctx.pool, id, operator('test'));
      expect(await lastOther(its.second)).toBeLessThan(1_000);
      await until(
        async () => Promise.resolve(its.second.ctx.changes.live),
        (live) => live,
      );
      expect(await ask(its.second)).toBe(401);
    }
  });
});

test('a long answer in progress is cut off when its key is revoked', async () => {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const held = fetch(`${its.second.url}/v1/sandboxes?start=true&wait_for=running`, {
    method: 'POST',
    headers,
    body: JSON.stringify(smallRequest('never-runs')),
  });
  const ended = held.then(
    () => 'answered',
    () => 'cut off',
  );
  await until(
    () => its.client.get('/v1/sandboxes/by-name/never-runs'),
    ({ status }) => status === 200,
  );
  await revokeKey(its.first.ctx.pool, keyId, operator('test'));
  // Well before the end of the two minutes that the answer would take.
  expect(await ended).toBe('cut off');
});

test('under load every answer to a revoked key began within a second of the revocation', async () => {
  let revokedAt = Infinity;
  const late: number[] = [];
  const began = performance.now();
  const asking = Promise.all(
    Array.from({ length: 8 }, async () => {
      let isRefused = false;
      while (!isRefused || performance.now() < began + 3_000) {
        const asked = performance.now();
        const status = await ask(its.second);
        const isLate = asked > revokedAt + 1_000;
        if (status === 200 && isLate) late.push(asked - revokedAt);
        isRefused ||= status === 401 && isLate;
      }
    }),
  );
  await sleep(700);
  await revokeKey(its.first.ctx.pool, keyId, operator('test'));
  revokedAt = performance.now();
  await asking;
  expect(late).toEqual([]);
});

test('a network that sends more unknown keys than may wait is refused, and others are not', async () => {
  const { pool, changes } = its.first.ctx;
  const keys = new KeyCache(pool, changes);
  const answer = (network: string) =>
    keys.find(makeKey(), network).then(
      (found) => found ?? 'unknown',
      (error: Error) => error.message,
    );
  const busy = Array.from({ length: 1_001 }, () => answer('busy'));
  const other = answer('other');
  const told = await Promise.all(busy);
  expect(told.filter((text) => text !== 'unknown')).toEqual(['too many unknown keys are sent: try again']);
  expect([await other, await answer('busy')]).toEqual(['unknown', 'unknown']);
  keys.close();
});
