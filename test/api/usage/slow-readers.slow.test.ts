import { once } from 'node:events';
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectAlone } from '../../../src/db/pool.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';
import { newOrgOfAYear } from '../../support/year-of-runs.js';

/** Other files have a table with the same number in their databases. */
const HERE = 'database = (select oid from pg_database where datname = current_database())';
const YEAR = '/v1/billing/usage/sandbox?since=2025-01-01&until=2026-01-01';

let service: TestService;
/** A service on the same database with lower limits. */
let strict: TestService;
let large: Client;
let second: Client;
let wordy: Client;
beforeAll(async () => {
  // A busy machine may need longer than the defaults to free a connection, or to send 200 requests.
  const patient = { usagePatienceMs: 150_000, usageStallMs: 600_000 };
  service = await startTestService({ worker: false, settings: patient });
  const settings = { usageStallMs: 6_000, usageLimitMs: 15_000 };
  strict = await startTestService({ worker: false, beside: service, settings });
  large = await newOrgOfAYear(service, 300, 'box');
  second = await newOrgOfAYear(service, 300, 'box');
  // Rows of 5 kB, fetched thousands at a time.
  wordy = await newOrgOfAYear(service, 20, 'x'.repeat(5_000));
});
afterAll(async () => {
  await strict.close();
  await service.close();
});

/** Requests a report over a connection of its own, and reads nothing yet. */
async function askRaw(
  { url }: TestService,
  client: Client,
  { version = '1.1', accept = 'application/json' } = {},
): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.pause();
  socket.write(
    [
      `GET ${YEAR} HTTP/${version}`,
      'host: sandkeep',
      `accept: ${accept}`,
      `authorization: Bearer ${client.key}`,
      '\r\n',
    ].join('\r\n'),
  );
  return socket;
}

/** Requests a report with a request that can be destroyed. */
function ask(client: Client): ClientRequest {
  const asked = request(`${service.url}${YEAR}`, {
    headers: { authorization: `Bearer ${client.key}` },
    agent: false,
  });
  asked.on('error', () => undefined);
  asked.end();
  return asked;
}

function untilBusy({ ctx }: TestService, wanted: number): Promise<unknown> {
  return until(
    () => Promise.resolve(ctx.requests.watched.totalCount - ctx.requests.watched.idleCount),
    (busy) => busy === wanted,
    30_000,
  );
}

/** Blocks every report before its first byte while `work` runs. */
async function withReportsHeldUp(work: (untilHeldUp: (count: number) => Promise<unknown>) => Promise<void>) {
  const alone = await connectAlone(service.database);
  try {
    await alone.query('begin');
    await alone.query('lock table usage_days in access exclusive mode');
    await work((count) =>
      until(
        async () => {
          const { rows } = await alone.query<{ count: number }>(
            `select count(*)::int from pg_locks where not granted and relation = 'usage_days'::regclass and ${HERE}`,
          );
          return rows[0]!.count;
        },
        (waiting) => waiting === count,
        30_000,
      ),
    );
  } finally {
    await alone.end();
  }
}

describe('a client that stops reading', () => {
  test('is cut off for a waiting one, and the summary of a month waits for none', async () => {
    const sockets: Socket[] = [];
    for (const client of [large, second]) {
      for (let count = 0; count < 3; count += 1) sockets.push(await askRaw(service, client));
    }
    await untilBusy(service, 6);
    const third = await service.newOrg();
    expect((await third.get('/v1/billing/usage')).status).toBe(200);
    expect((await third.get('/v1/billing/usage/sandbox')).status).toBe(200);
    // The service cut off only one of them. The answered report frees its connection after its last byte.
    await untilBusy(service, 5);
    for (const socket of sockets) socket.destroy();
    await untilBusy(service, 0);
  });

  test('is distinguished from one that reads slowly, however long a batch takes', async () => {
    const socket = await askRaw(strict, wordy, { accept: 'text/csv' });
    const begun = performance.now();
    let got = 0;
    let gotLast = begun;
    // The kernel passes on a megabyte or two at a time between local processes, so a slower reader would seem to have
    // stopped. The clock sets the rate: a busy machine runs timers late.
    socket.on('data', (bytes: Buffer) => {
      got += bytes.length;
      gotLast = performance.now();
      socket.pause();
      setTimeout(() => socket.resume(), Math.max(0, got / 1_500 - (gotLast - begun)));
    });
    socket.resume();
    // It reads at that rate for longer than a reader may stall, and no report exceeds the limit.
    await untilBusy(strict, 1);
    await untilBusy(strict, 0);
    expect(performance.now() - begun).toBeGreaterThan(14_000);
    expect(gotLast - begun).toBeGreaterThan(12_000);
    expect(got).toBeLessThan(20 * 365 * 5_000);
    socket.destroy();
  });
});

describe('a client that disconnects', () => {
  test('before the first byte leaves neither a connection nor a statement open', async () => {
    await withReportsHeldUp(async (untilHeldUp) => {
      const asked = [ask(large), ask(large), ask(large)];
      await untilHeldUp(3);
      for (const one of asked) one.destroy();
      await untilHeldUp(0);
      await untilBusy(service, 0);
    });
    expect((await large.get('/v1/billing/usage/storage')).status).toBe(200);
    expect(service.logs.filter((line) => /reading a stream failed|request failed/.test(line))).toEqual([]);
  });

  test('while it waits frees its place in the queue; a request beyond the queue is refused at once', async () => {
    await withReportsHeldUp(async (untilHeldUp) => {
      const statuses: (number | undefined)[] = [];
      const asked = Array.from({ length: 205 }, () => {
        const one = ask(large);
        one.once('response', (response) => {
          statuses.push(response.statusCode);
          response.resume();
        });
        return one;
      });
      // The other reports are still blocked when these two are answered.
      await until(
        () => Promise.resolve(statuses.length),
        (count) => count >= 2,
      );
      // Three reports are in progress and two hundred wait.
      expect(statuses).toEqual([429, 429]);
      for (const one of asked) one.destroy();
      await untilHeldUp(0);
      await untilBusy(service, 0);
    });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => large.get('/v1/billing/usage/storage')),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
  });

  test('gets 405 for HEAD, so no report is computed without a reader', async () => {
    for (const report of ['sandbox', 'labels?key=team', 'storage']) {
      const { status, headers } = await fetch(`${service.url}/v1/billing/usage/${report}`, {
        method: 'HEAD',
        headers: { authorization: `Bearer ${large.key}` },
      });
      expect([status, headers.get('allow')]).toEqual([405, 'GET']);
    }
  });
});

test.each(['1.0', '1.1'])('a report that fails midway resets the connection (HTTP/%s)', async (version) => {
  await untilBusy(service, 0);
  const socket = await askRaw(service, wordy, { version, accept: 'text/csv' });
  let ended = false;
  let got = 0;
  socket.on('end', () => (ended = true));
  await until(
    () => Promise.resolve(socket.readableLength),
    (length) => length > 0,
  );
  const reason = new Promise<Error | undefined>((resolve) => {
    socket.once('error', resolve);
    socket.once('close', () => resolve(undefined));
  });
  // The only report in progress: most of the year is still to come.
  const { rows } = await service.ctx.pool.query<{ ended: boolean }>(
    `select pg_terminate_backend(pid) as ended from pg_locks
     where relation = 'usage_days'::regclass and mode = 'AccessShareLock' and granted and ${HERE}`,
  );
  expect(rows).toEqual([{ ended: true }]);
  socket.on('data', (bytes: Buffer) => (got += bytes.length));
  expect(await reason).toMatchObject({ code: 'ECONNRESET' });
  expect(ended).toBe(false);
  expect(got).toBeLessThan(20 * 365 * 5_000);
});

test.each([
  [undefined, 'application/json'],
  ['*/*', 'application/json'],
  ['application/json', 'application/json'],
  ['text/csv', 'text/csv'],
  ['text/csv;charset=utf-8', 'text/csv'],
  ['text/csv; header=present', 'text/csv'],
  ['text/*', 'text/csv'],
  ['text/csv, */*', 'text/csv'],
  ['*/*, text/csv', 'text/csv'],
  ['text/*, application/json', 'application/json'],
  ['text/csv, application/json', 'text/csv'],
  ['application/json, text/csv', 'application/json'],
  ['text/csv;q=0.9, application/*', 'application/json'],
  ['text/csv;q=0.5, */*;q=0.1', 'text/csv'],
  ['text/csv, application/json;q=0.9', 'text/csv'],
  ['*/*;q=0, TEXT/CSV', 'text/csv'],
  ['application/json;q=0, */*', 'text/csv'],
  ['application/json;q=0', 'text/csv'],
  ['application/xml', 'application/json'],
  ['text/csv;q=0', 'application/json'],
  ['*/*;q=0', 'application/json'],
  ['text/csv; charset=UTF-8', 'text/csv'],
  ['text/csv; charset=utf-8; q=0.2, application/json; q=0.1', 'text/csv'],
  ['text/*;q=0, image/png', 'application/json'],
  ['', 'application/json'],
])('accept: %s is answered with %s', async (accept, type) => {
  for (const report of ['', '/storage']) {
    const { hostname, port } = new URL(service.url);
    const asked = request({
      hostname,
      port,
      path: `/v1/billing/usage${report}`,
      headers: {
        authorization: `Bearer ${large.key}`,
        ...(accept === undefined ? {} : { accept }),
      },
    });
    asked.end();
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    response.resume();
    expect([response.statusCode, response.headers['content-type']]).toEqual([200, `${type}; charset=utf-8`]);
  }
});
