import { once, setMaxListeners } from 'node:events';
import { Agent, request } from 'node:http';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { makeKey } from '../../../src/access/key-secret.js';
import { REFUSAL_DELAY_MS } from '../../../src/http/refusal-delays.js';
import { ADMISSION, OUTSIDE_MS } from '../../../src/http/admission.js';
import { operator } from '../../../src/audit/events/actor.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { createKey } from '../../../src/keys/create.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Client } from '../../support/client.js';
import { countWaitingCommits, whileCommitsWait } from '../../support/held-commits.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until } from '../../support/polling.js';
import { exchangeRaw, openRaw, requestHead } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';

const CONNECTIONS = 200;

let service: TestService;
let busy: Client;
let quiet: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false, settings: { rateLimit: 0 } });
  [busy, quiet] = [await service.newOrg(), await service.newOrg()];
  for (const client of [busy, quiet]) {
    const made = Array.from({ length: 100 }, (_, index) =>
      client.post('/v1/sandboxes', smallRequest(`box-${index}`)),
    );
    expect((await Promise.all(made)).every(({ status }) => status === 200)).toBe(true);
  }
});
afterAll(() => service.close());

const agent = new Agent({ keepAlive: true, maxSockets: Infinity });

/** Each on a connection of its own. */
function ask(path: string, key: string, signal?: AbortSignal): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${service.url}${path}`,
      { agent, headers: { authorization: `Bearer ${key}` }, ...(signal ? { signal } : {}) },
      (answer) => {
        answer.resume().on('end', () => resolve(answer.statusCode!));
      },
    );
    sent.on('error', reject).end();
  });
}

test('an organization with 200 connections delays another by a handful of its requests', async () => {
  let answered = 0;
  const over = new AbortController();
  // Several keys of one organization get no larger share.
  const keys = await Promise.all(
    ['one', 'two', 'three'].map((name) => createKey(service.ctx.pool, busy.org.id, name, operator('test'))),
  );
  const statuses = new Set<number>();
  const flood = Promise.allSettled(
    Array.from({ length: CONNECTIONS }, async (_, index) => {
      while (!over.signal.aborted) {
        statuses.add(await ask('/v1/sandboxes?limit=50', keys[index % keys.length]!.key));
        answered += 1;
      }
    }),
  );
  await until(
    () => Promise.resolve(answered),
    (count) => count >= CONNECTIONS,
  );
  const between: number[] = [];
  for (let count = 0; count < 21; count += 1) {
    const before = answered;
    expect(await ask('/v1/sandboxes/by-name/box-1', quiet.key)).toBe(200);
    between.push(answered - before);
  }
  over.abort();
  expect((await flood).filter(({ status }) => status === 'rejected')).toEqual([]);
  // A busy machine may let a request wait for too long.
  statuses.delete(503);
  expect([...statuses]).toEqual([200]);
  const median = between.toSorted((a, b) => a - b)[10]!;
  expect(median).toBeLessThan(CONNECTIONS / 5);
});

test('requests beyond the queue of an organization are refused, and those of another are answered', async () => {
  const head = (...headers: string[]) => requestHead('GET /v1/sandboxes?limit=5', busy.key, ...headers);
  const pipelined = head().repeat(99) + head('connection: close');
  const all = Array.from({ length: 12 }, () => exchangeRaw(service.url, pipelined));
  const other = await quiet.get('/v1/sandboxes');
  expect(other.status).toBe(200);
  const answers = (await Promise.all(all)).join('');
  const statuses = [...answers.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
  expect(statuses).toHaveLength(1_200);
  expect(statuses).toContain('429');
  expect(statuses).toContain('200');
  // A busy machine may let a request wait for too long.
  expect(statuses.filter((status) => !['200', '429', '503'].includes(status!))).toEqual([]);
  expect(answers).toContain('too many requests are in progress');
  expect(answers).toMatch(/retry-after: 1\r\n/i);
});

test('clients that leave while they wait free their places', async () => {
  const leaving = new AbortController();
  setMaxListeners(0, leaving.signal);
  const gone = Array.from({ length: 300 }, () =>
    ask('/v1/sandboxes?limit=50', busy.key, leaving.signal).catch(() => 'left'),
  );
  await ask('/healthz', '');
  leaving.abort();
  await Promise.all(gone);
  const all = Array.from({ length: ADMISSION.waiting.each }, () => ask('/v1/me/org', busy.key));
  expect(new Set(await Promise.all(all))).toEqual(new Set([200]));
});

test('requests that wait for a sandbox hold no place', async () => {
  const count = ADMISSION.running.each / 2 + 4;
  const query = { start: true, wait_for: 'running', wait_timeout: 120 };
  const isMade = async (name: string) => (await busy.get(`/v1/sandboxes/by-name/${name}`)).status === 200;
  let taken = Infinity;
  // A busy machine delays single attempts. A place is free again after this time in any case.
  for (let attempts = 0; attempts < 6 && taken >= ADMISSION.maxHoldMs; attempts += 1) {
    const begun = performance.now();
    const leaving = new AbortController();
    let ended = 0;
    const waits = Array.from({ length: count }, async (_, index) => {
      const body = smallRequest(`waits-${attempts}-${index}`);
      const asked = busy.request('POST', '/v1/sandboxes', { body, query, signal: leaving.signal });
      await asked.then(
        () => (ended += 1),
        () => undefined,
      );
    });
    while (!(await isMade(`waits-${attempts}-${count - 1}`)));
    expect(ended).toBe(0);
    taken = performance.now() - begun;
    leaving.abort();
    await Promise.all(waits);
  }
  expect(taken).toBeLessThan(ADMISSION.maxHoldMs);
});

test('a length that is declared and never read costs nobody a place', async () => {
  const { socket } = await openRaw(service.url);
  socket.write(requestHead('GET /healthz', null, `content-length: ${Number.MAX_SAFE_INTEGER}`));
  await once(socket, 'data');
  socket.destroy();
  let taken = Infinity;
  // A busy machine delays single answers.
  for (let attempts = 0; attempts < 6 && taken >= ADMISSION.maxHoldMs / 2; attempts += 1) {
    const slow = await inTransaction(service.ctx.pool, async (tx) => {
      await tx.query('lock table volumes in access exclusive mode');
      const asked = Array.from({ length: 40 }, () => ask('/v1/volumes', busy.key));
      await sleep(500);
      const begun = performance.now();
      expect(await ask('/healthz', '')).toBe(200);
      taken = performance.now() - begun;
      return asked;
    });
    expect(new Set(await Promise.all(slow))).toEqual(new Set([200]));
  }
  expect(taken).toBeLessThan(ADMISSION.maxHoldMs / 2);
});

test('reads of an organization wait for none of its writes that wait for the disk', async () => {
  const { pool } = service.ctx;
  let taken = Infinity;
  // A busy machine delays single answers.
  for (let attempts = 0; attempts < 6 && taken >= ADMISSION.maxHoldMs / 2; attempts += 1) {
    const { all } = await whileCommitsWait(pool, 'sandboxes', async () => {
      // While another organization is active, this one has its smaller share.
      expect(await ask('/v1/sandboxes?limit=5', quiet.key)).toBe(200);
      const writes = Array.from({ length: ADMISSION.running.each }, (_, index) =>
        busy.post('/v1/sandboxes', smallRequest(`slow-${attempts}-${index}`)),
      );
      await until(
        () => countWaitingCommits(pool),
        (count) => count > 0,
      );
      const begun = performance.now();
      expect(await ask('/v1/sandboxes?limit=5', busy.key)).toBe(200);
      taken = performance.now() - begun;
      return { all: Promise.all(writes) };
    });
    expect(new Set((await all).map(({ status }) => status))).toEqual(new Set([200]));
  }
  expect(taken).toBeLessThan(ADMISSION.maxHoldMs / 2);
});

test('a refused request is charged for its reading and answer, and an export of two turns once', async () => {
  const charge = vi.spyOn(service.ctx.pace, 'charge');
  const chargesOf = ({ org }: Client) =>
    charge.mock.calls.filter(([key, millis]) => key === org.id && millis === OUTSIDE_MS).length;
  try {
    for (let count = 0; count < 20; count += 1) expect((await busy.post('/v1/keys', {})).status).toBe(400);
    expect(chargesOf(busy)).toBe(20);
    expect(await ask('/v1/events/export', quiet.key)).toBe(200);
    expect(chargesOf(quiet)).toBe(1);
  } finally {
    charge.mockRestore();
  }
});

test('an address that guesses keys gets few answers, and a known key waits for none of them', async () => {
  const guarded = await startTestService({
    worker: false,
    settings: { failedAuthLimit: 10 },
    beside: service,
  });
  let answers = 0;
  const over = new AbortController();
  const url = guarded.url;
  const guess = async () =>
    fetch(`${url}/v1/me/org`, { headers: { authorization: `Bearer ${makeKey()}` } }).then(
      (answer) => answer.status,
    );
  try {
    for (let count = 0; count < 10; count += 1) expect(await guess()).toBe(401);
    const begun = performance.now();
    const flood = Array.from({ length: 20 }, async () => {
      while (!over.signal.aborted) {
        expect(await guess()).toBe(429);
        answers += 1;
      }
    });
    const known = { headers: { authorization: `Bearer ${quiet.key}` } };
    for (let count = 0; count < 50; count += 1)
      expect((await fetch(`${url}/v1/me/org`, known)).status).toBe(200);
    over.abort();
    await Promise.all(flood);
    // Each connection gets one answer in each delay.
    const delays = Math.floor((performance.now() - begun) / REFUSAL_DELAY_MS);
    expect(answers).toBeLessThanOrEqual(20 * delays);
  } finally {
    await guarded.close();
  }
});
