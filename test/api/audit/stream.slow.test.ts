import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { REFUSAL_DELAY_MS } from '../../../src/http/refusal-delays.js';
import { encodePosition } from '../../../src/audit/list/stream-position.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import { makeClient, type Client } from '../../support/client.js';
import { untilSealed, wholeLog } from '../../support/event-log.js';
import { allEvents, openEvents, type ServerEvent } from '../../support/event-stream.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { askAndStare } from '../../support/unread-response.js';

const settings = { logKeepAliveMs: 300, maxEventFollowers: 4, usageStallMs: 700 };

let service: TestService;
let beside: TestService;
beforeAll(async () => {
  service = await startTestService({ settings });
  beside = await startTestService({ beside: service, settings, worker: false });
});
afterAll(async () => {
  await beside.close();
  await service.close();
});

const PATH = '/v1/events/stream';
const at = ({ org, key, keyId }: Client, other: TestService): Client =>
  makeClient(other.url, { org, key, keyId });
const make = (client: Client, name: string) => client.post('/v1/volumes', { name });

/** The next events that have data. */
async function take(events: AsyncGenerator<ServerEvent>, count: number): Promise<ServerEvent[]> {
  const taken: ServerEvent[] = [];
  while (taken.length < count) {
    const { value, done } = await events.next();
    if (done === true) throw new Error(`the stream ended after ${taken.length} events`);
    if (value.data !== undefined) taken.push(value);
  }
  return taken;
}

async function follow(client: Client, query = '', lastId?: string) {
  const leave = new AbortController();
  const headers: Record<string, string> = lastId === undefined ? {} : { 'last-event-id': lastId };
  const opened = await openEvents(client, `${PATH}${query}`, { headers, signal: leave.signal });
  expect(opened.response.status).toBe(200);
  return { ...opened, leave: () => leave.abort() };
}

/** A slot becomes free once the service notices that its client left. */
async function followWhenFree(client: Client, query = '', lastId?: string) {
  const left = await until(
    () => follow(client, query, lastId).catch(() => undefined),
    (opened) => opened !== undefined,
  );
  return left!;
}

test('a stream sends events as they happen, and no earlier ones', async () => {
  const client = await service.newOrg();
  await untilSealed(service.ctx.pool, client.org.id);
  const { response, events, leave } = await follow(client);
  expect(Object.fromEntries(response.headers)).toMatchObject({
    'content-type': 'text/event-stream',
    'cache-control': 'no-store, no-transform',
  });
  const { body: volume } = await make(client, 'data');
  await client.delete(`/v1/volumes/${volume.id}`);
  const [created, deleted] = await take(events, 2);
  expect([created!.event, deleted!.event]).toEqual(['volume_created', 'volume_deletion_scheduled']);
  expect(created!.data).toEqual((await client.get(`/v1/events/${created!.data.id}`)).body);
  expect(created!.id).toMatch(/^[\w-]+$/);
  leave();
});

test('a stream applies its filters, and moves its cursor while no event matches', async () => {
  const client = await service.newOrg();
  const { body: first } = await make(client, 'first');
  await untilSealed(service.ctx.pool, client.org.id);
  const { events, leave } = await follow(
    client,
    `?since=2020-01-01T00:00:00Z&category=volume&resource_id=${first.id.toUpperCase()}&event_type=!volume_updated`,
  );
  await client.patch(`/v1/volumes/${first.id}`, { labels: { a: 'b' } });
  await make(client, 'second');
  await client.delete(`/v1/volumes/${first.id}`);
  // With `since` the stream starts at the first event that matches.
  const taken = await take(events, 2);
  expect(taken.map(({ event }) => event)).toEqual(['volume_created', 'volume_deletion_scheduled']);
  await make(client, 'third');
  await untilSealed(service.ctx.pool, client.org.id);
  let moved: ServerEvent;
  do moved = (await events.next()).value as ServerEvent;
  while (moved.id === undefined);
  expect(moved).toEqual({ id: expect.any(String) });
  leave();
  const rest = await followWhenFree(client, '', moved.id);
  await make(client, 'fourth');
  expect((await take(rest.events, 1))[0]!.data.payload.name).toBe('fourth');
  rest.leave();
});

test('a client that reconnects to another process gets each missed event exactly once', async () => {
  const client = await service.newOrg();
  await untilSealed(service.ctx.pool, client.org.id);
  const before = (await wholeLog(service.ctx.pool, client.org.id)).length;
  const VOLUMES = 80;
  const clients = [client, at(client, beside)];
  let opened = await follow(client);
  const written = (async () => {
    // Four writes at once, at both processes: they commit in another order than they began in.
    const names = Array.from({ length: VOLUMES }, (_, index) => `volume-${index}`);
    await Promise.all(
      [0, 1, 2, 3].map(async (lane) => {
        for (const [index, name] of names.entries()) {
          if (index % 4 === lane) expect((await make(clients[lane % 2]!, name)).status).toBe(200);
        }
      }),
    );
  })();
  const seen: string[] = [];
  let turns = 0;
  let lastId: string | undefined;
  while (seen.length < VOLUMES) {
    // The connection breaks at any moment, also before the first event.
    const most = Math.min(1 + ((turns * 7) % 11), VOLUMES - seen.length);
    for (const { id, data } of await take(opened.events, most)) {
      lastId = id!;
      seen.push(data.id);
    }
    opened.leave();
    turns += 1;
    if (seen.length < VOLUMES) opened = await followWhenFree(clients[turns % 2]!, '', lastId);
  }
  await written;
  await untilSealed(service.ctx.pool, client.org.id);
  const log = (await wholeLog(service.ctx.pool, client.org.id)).slice(before);
  // Other events, such as the first use of the key, are in both.
  expect(seen).toEqual(log.map(({ event_id }) => event_id).slice(0, VOLUMES));
  expect(turns).toBeGreaterThan(10);
});

test('an export and a stream continue at the end of each other', async () => {
  const client = await service.newOrg();
  await untilSealed(service.ctx.pool, client.org.id);
  const exported = await client.request('GET', '/v1/events/export');
  await make(client, 'after-export');
  const { events, leave } = await followWhenFree(client, `?cursor=${exported.headers.get('next-cursor')}`);
  const taken = await take(events, 2);
  expect(taken.map(({ event }) => event)).toEqual(['events_exported', 'volume_created']);
  leave();
  const rest = await client.get('/v1/events/export', { cursor: taken[0]!.id! });
  const types = rest.text.split('\n').flatMap((line) => /"event_type":"(\w+)"/.exec(line)?.[1] ?? []);
  expect(types).toEqual(['volume_created']);
});

test('events arrive without notifications, too', async () => {
  const client = await service.newOrg();
  await untilSealed(service.ctx.pool, client.org.id);
  const other = at(client, beside);
  const { events, leave } = await followWhenFree(other);
  const kill = () =>
    service.ctx.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and query like 'listen %'`,
    );
  const work = { killing: true };
  const killed = (async () => {
    while (work.killing) {
      await kill();
      await delay(20);
    }
  })();
  try {
    for (const name of ['one', 'two', 'three']) {
      await make(client, name);
      expect((await take(events, 1))[0]!.data.payload.name).toBe(name);
    }
  } finally {
    work.killing = false;
    await killed;
  }
  leave();
});

test('a stream ends when its key is revoked, at every process, with and without notifications', async () => {
  const client = await service.newOrg();
  const other = at(client, beside);
  const here = await followWhenFree(client);
  const there = await followWhenFree(other);
  const ends = Promise.all(
    [here.events, there.events].map(async (events) => {
      const seen = take(events, Infinity);
      await expect(seen).rejects.toThrow();
    }),
  );
  await revokeKey(service.ctx.pool, client.keyId, operator('test'));
  await ends;
});

test('the number of open streams is limited, and a refused request takes no slot', async () => {
  const [client, other, third] = [await service.newOrg(), await service.newOrg(), await service.newOrg()];
  const refused = async (by: Client) => {
    const asked = performance.now();
    const { status, body, headers } = await by.get(PATH);
    expect([status, body.error.code, headers.get('retry-after')]).toEqual([429, 'rate_limited', '5']);
    expect(performance.now() - asked).toBeGreaterThan(REFUSAL_DELAY_MS - 10);
  };
  // One organization does not take every slot.
  const open = [await followWhenFree(client), await followWhenFree(client)];
  await refused(client);
  open.push(await followWhenFree(other), await followWhenFree(other));
  await refused(third);
  const foreign = (await (await service.newOrg()).get('/v1/events/export')).headers.get('next-cursor')!;
  const behind = encodePosition(service.ctx.cursors, client.org.id, 1_000_000);
  for (const id of ['x', foreign, behind]) {
    const answer = await client.request('GET', PATH, { headers: { 'last-event-id': id } });
    expect([answer.status, answer.body.error.details]).toEqual([400, { parameter: 'last-event-id' }]);
  }
  expect((await client.get(PATH, { until: 'now' })).status).toBe(400);
  for (const { leave } of open) leave();
  (await followWhenFree(client)).leave();
});

test('line breaks in the type of an imported event do not break the lines of a stream', async () => {
  const client = await service.newOrg();
  await service.ctx.pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
     values ($1, gen_random_uuid(), now(), 'test', $2, '{"kind":"system","code":"test","label":"Test"}', 'null', 'system', 'test')`,
    [client.org.id, 'other\ndata: {"planted":true}\r\n\r\nevent: planted'],
  );
  await untilSealed(service.ctx.pool, client.org.id);
  const { events, leave } = await followWhenFree(client, '?since=2020-01-01T00:00:00Z&category=test');
  const [event] = await take(events, 1);
  expect(event!.event).toBe('other data: {"planted":true}    event: planted');
  expect(event!.data.category).toBe('test');
  leave();
});

test('a client that reads nothing is cut off', async () => {
  const client = await service.newOrg();
  await service.ctx.pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
     select $1, gen_random_uuid(), now() + n * interval '1 microsecond', 'test', 'imported_from_elsewhere',
       '{"kind":"system","code":"test","label":"Test"}', json_build_object('pad', repeat('x', 10000)), 'system', 'test'
     from generate_series(1, 2000) n`,
    [client.org.id],
  );
  await untilSealed(service.ctx.pool, client.org.id, 30_000);
  const cutOffs = () => service.logs.filter((line) => line.includes('a slow reader was cut off')).length;
  const before = cutOffs();
  const response = await askAndStare(client, `${PATH}?since=2020-01-01T00:00:00Z`);
  const closed = new Promise((resolve) => response.once('close', resolve));
  // A client that does not read cannot notice the end of its connection.
  await until(
    () => Promise.resolve(cutOffs()),
    (count) => count > before,
    30_000,
  );
  response.resume();
  await closed;
  expect(response.complete).toBe(false);
});

test('a stream ends with its end marker when the service stops', async () => {
  const stopping = await startTestService({ beside: service, settings, worker: false });
  const opened = await openEvents(at(await service.newOrg(), stopping), PATH);
  expect((await opened.events.next()).value).toEqual({ comment: 'following' });
  const rest = allEvents(opened.events);
  await stopping.close(120_000);
  // A connection that is cut off throws here.
  expect((await rest).at(-1)).toEqual({ retry: '1000' });
  expect(opened.response.ok).toBe(true);
});
