import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BODY_MEMORY } from '../../../src/access/bodies.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { sleep } from '../../../src/lib/sleep.js';
import { CREATE_BODY_LIMIT } from '../../../src/spec/size-limits.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { openRaw, requestHead } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';

/** One organization may have requests in progress on half of them. */
const CONNECTIONS = 40;
const TO_NOTICE_MS = 100;

let service: TestService;
beforeAll(async () => {
  const connections = { total: CONNECTIONS, each: CONNECTIONS };
  service = await startTestService({ worker: false, settings: { rateLimit: 0, connections } });
});
afterAll(() => service.close());

async function send({ key }: Client, count: number, line: string, ...headers: string[]): Promise<Socket> {
  const { socket } = await openRaw(service.url);
  socket.write(requestHead(line, key, ...headers).repeat(count));
  return socket;
}

/** Clients ask while the table cannot be read, and leave before it can. */
async function leaveWaiting(table: string, ask: () => Promise<Socket>[]): Promise<void> {
  await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query(`lock table ${table} in access exclusive mode`);
    const sockets = await Promise.all(ask());
    await sleep(TO_NOTICE_MS);
    for (const socket of sockets) socket.resetAndDestroy();
    await sleep(TO_NOTICE_MS);
  });
}

/** The whole share of the organization is free, beside its own connections. */
async function expectFree({ key }: Client): Promise<void> {
  const headers = { authorization: `Bearer ${key}` };
  const statusOf = async () => (await fetch(`${service.url}/v1/me/org`, { headers })).status;
  const statuses = () => Promise.all(Array.from({ length: CONNECTIONS / 2 }, statusOf));
  await until(statuses, (all) => all.every((status) => status === 200), 5_000);
}

test('clients that leave while their key is looked up hold nothing', async () => {
  const client = await service.newOrg();
  const count = CONNECTIONS / 2;
  await leaveWaiting('api_keys', () =>
    Array.from({ length: count }, () => send(client, 1, 'GET /v1/me/org')),
  );
  await expectFree(client);
});

test('their bodies no longer count', async () => {
  const client = await service.newOrg();
  const count = BODY_MEMORY.ofKey / CREATE_BODY_LIMIT;
  const headers = ['content-type: application/json', `content-length: ${CREATE_BODY_LIMIT}`];
  await leaveWaiting('api_keys', () =>
    Array.from({ length: count }, () => send(client, 1, 'POST /v1/sandboxes', ...headers)),
  );
  const statusOf = async () => (await client.request('POST', '/v1/sandboxes', { body: '{' })).status;
  expect(await until(statusOf, (status) => status === 400, 5_000)).toBe(400);
});

test('clients that leave behind pipelined requests hold nothing', async () => {
  const client = await service.newOrg();
  await expectFree(client);
  await leaveWaiting('volumes', () => [send(client, 10, 'GET /v1/volumes')]);
  await expectFree(client);
});
