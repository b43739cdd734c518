import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

/** Concurrent lookups of sandboxes share a statement. */

let service: TestService;
let client: Client;
let other: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  other = await service.newOrg();
});
afterAll(() => service.close());

async function made(owner: Client, name: string, overrides = {}): Promise<{ id: string; name: string }> {
  const { status, body, text } = await owner.post('/v1/sandboxes', smallRequest(name, overrides));
  expect(status, text).toBe(200);
  return body as { id: string; name: string };
}

test('hundreds of concurrent lookups each get their own sandbox, or a 404', async () => {
  const env = [{ key: 'LONG', value: randomBytes(8_000).toString('base64') }];
  const own = await Promise.all(
    Array.from({ length: 12 }, (_, index) => made(client, `own-${index}`, index % 4 === 0 ? { env } : {})),
  );
  // Sandboxes of another organization with the same names.
  const foreign = await Promise.all(own.map(({ name }) => made(other, name)));
  const asked = Array.from({ length: 400 }, (_, index) => {
    const { id, name } = own[index % own.length]!;
    const theirs = foreign[index % foreign.length]!;
    return [
      { who: client, path: `/v1/sandboxes/${id}`, gets: id },
      { who: client, path: `/v1/sandboxes/${id.toUpperCase()}`, gets: id },
      { who: client, path: `/v1/sandboxes/by-name/${name}`, gets: id },
      { who: client, path: `/v1/sandboxes/${theirs.id}`, gets: undefined },
      { who: client, path: '/v1/sandboxes/by-name/OWN-1', gets: undefined },
      { who: other, path: `/v1/sandboxes/by-name/${name}`, gets: theirs.id },
      { who: other, path: `/v1/sandboxes/${id}`, gets: undefined },
    ][index % 7]!;
  });
  const answers = await Promise.all(asked.map(({ who, path }) => who.get(path)));
  for (const [index, { status, body, text }] of answers.entries()) {
    const { path, gets } = asked[index]!;
    expect([path, status, status === 200 ? body.id : body.error.code]).toEqual([
      path,
      ...(gets === undefined ? [404, 'sandbox_not_found'] : [200, gets]),
    ]);
    if (gets !== undefined) {
      const alone = await (asked[index]!.who.get(path) as Promise<{ text: string }>);
      expect(text).toBe(alone.text);
    }
  }
});

test('a lookup after a change returns it during many concurrent lookups', async () => {
  const { id } = await made(client, 'changing');
  const over = new AbortController();
  const others = Array.from({ length: 24 }, async () => {
    while (!over.signal.aborted) expect((await client.get(`/v1/sandboxes/${id}`)).status).toBe(200);
  });
  for (let round = 0; round < 40; round += 1) {
    const name = `changed-${round}`;
    expect((await client.patch(`/v1/sandboxes/${id}`, { name })).status).toBe(200);
    const [byId, byName, before] = await Promise.all([
      client.get(`/v1/sandboxes/${id}`),
      client.get(`/v1/sandboxes/by-name/${name}`),
      client.get('/v1/sandboxes/by-name/changing'),
    ]);
    expect([byId.body.name, byName.body.id, before.status]).toEqual([name, id, 404]);
  }
  over.abort();
  await Promise.all(others);
});

test('a failed statement fails only the lookups in it, and the next ones succeed', async () => {
  const { id } = await made(client, 'there');
  const { pool } = service.ctx;
  const ask = () =>
    fetch(`${client.url}/v1/sandboxes/${id}`, { headers: { authorization: `Bearer ${client.key}` } });
  await pool.query('alter table sandboxes rename column slug to slug_before');
  try {
    const answers = await Promise.all(Array.from({ length: 20 }, ask));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([500]));
  } finally {
    await pool.query('alter table sandboxes rename column slug_before to slug');
  }
  const answers = await Promise.all(Array.from({ length: 20 }, ask));
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
});
