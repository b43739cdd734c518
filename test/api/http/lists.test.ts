import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { insertEvent } from '../../../src/audit/events/queries.js';
import type { Sql } from '../../../src/db/pool.js';
import { instantFromMicros, microsOf, shortInstant } from '../../../src/lib/instant.js';
import {
  getSandboxPage,
  positionOf,
  mergingLabels,
  type Sort,
} from '../../../src/sandboxes/reads/list-queries.js';
import type { SandboxStatus } from '../../../src/spec/statuses.js';
import type { Client } from '../../support/client.js';
import { dropEvents } from '../../support/event-log.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

let service: TestService;
let base: bigint;
beforeAll(async () => {
  base = microsOf('2026-03-01T00:00:00.000000Z');
  // Few distinct microseconds, so only the tie-breaker orders the rows of one microsecond.
  let step = 0;
  service = await startTestService({
    worker: false,
    now: () => instantFromMicros(base + BigInt(Math.floor((step += 1) / 12))),
  });
});
afterAll(() => service.close());

/** Follows the cursors to the end. `between` runs after each page. */
async function walk(
  client: Client,
  path: string,
  query: Record<string, string | number | string[]>,
  between: () => Promise<unknown> = () => Promise.resolve(),
): Promise<any[]> {
  const all: any[] = [];
  let cursor: string | null = null;
  do {
    const { status, body, text } = await client.get(path, {
      ...query,
      ...(cursor === null ? {} : { cursor }),
    });
    expect(status, text).toBe(200);
    expect(body.has_more).toBe(body.next_cursor !== null);
    if (query['limit'] !== undefined) expect(body.data.length).toBeLessThanOrEqual(Number(query['limit']));
    all.push(...body.data);
    cursor = body.next_cursor;
    if (cursor !== null) await between();
  } while (cursor !== null);
  return all;
}

describe('sandboxes', () => {
  let client: Client;
  let model: any[];
  beforeAll(async () => {
    client = await service.newOrg();
    model = [];
    for (let index = 0; index < 60; index += 1) {
      const labels = {
        ...(index % 2 === 0 ? { team: 'ml' } : { team: 'web' }),
        ...(index % 3 === 0 ? { gpu: '' } : {}),
        ...(index % 5 === 0 ? { 'a"b\\c': 'ü%_' } : {}),
      };
      const name = `${['a', 'B', 'b_x', 'b%x', 'Z'][index % 5]}-${index}`.replace('%', '.');
      const start = index % 4 === 0 ? { start: true } : {};
      model.push((await client.post('/v1/sandboxes', smallRequest(name, { labels }), start)).body);
    }
  });

  // The shortest exact forms of times do not sort as text.
  const micros = (text: string) =>
    microsOf(text.replace(/(\.\d+)?Z$/, (_, fraction = '.') => `${fraction.padEnd(7, '0')}Z`)) - base;
  const byTime = (a: any, b: any) => cmp(micros(a.created_at), micros(b.created_at)) || cmp(a.id, b.id);
  const orders: Record<string, (a: any, b: any) => number> = {
    '-created_at': (a, b) => -byTime(a, b),
    created_at: byTime,
    name: (a, b) => cmp(Buffer.from(a.name), Buffer.from(b.name)),
  };

  test('match a simple model under every filter, order and page size', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record(
          {
            labels: fc.subarray([
              ['team', 'ml'],
              ['gpu', ''],
              ['a"b\\c', 'ü%_'],
              ['team', 'nobody'],
            ]),
            status: fc.subarray(['created', 'starting', 'stopped'], { minLength: 1 }),
            name_prefix: fc.constantFrom('a', 'b', 'B-', 'b_', 'b.', '%', '_', '\\'),
            name_contains: fc.constantFrom('B', 'x-', '-1', '%', '_', '\\', '-'),
            created_after: fc.nat(12),
            created_before: fc.nat(12),
            sort: fc.constantFrom(...Object.keys(orders)),
            limit: fc.integer({ min: 1, max: 100 }),
          },
          { requiredKeys: [] },
        ),
        async ({
          labels,
          status,
          name_prefix,
          name_contains,
          created_after,
          created_before,
          sort,
          limit,
        }) => {
          const time = (offset: number) => shortInstant(instantFromMicros(base + BigInt(offset)));
          const query = {
            ...(labels ? { labels: JSON.stringify(Object.fromEntries(labels)) } : {}),
            ...(status ? { status } : {}),
            ...(name_prefix ? { name_prefix } : {}),
            ...(name_contains ? { name_contains } : {}),
            ...(created_after === undefined ? {} : { created_after: time(created_after) }),
            ...(created_before === undefined ? {} : { created_before: time(created_before) }),
            ...(sort ? { sort } : {}),
            ...(limit ? { limit } : {}),
          };
          const expected = model
            .filter(({ spec }) =>
              Object.entries(Object.fromEntries(labels ?? [])).every(([k, v]) => spec.labels[k] === v),
            )
            .filter((sandbox) => !status || status.includes(sandbox.status))
            .filter(({ name }) => !name_prefix || name.startsWith(name_prefix))
            .filter(
              ({ name }) =>
                !name_contains || name.toLowerCase().split(name_contains.toLowerCase()).length > 1,
            )
            .filter(
              ({ created_at }) => created_after === undefined || micros(created_at) > BigInt(created_after),
            )
            .filter(
              ({ created_at }) => created_before === undefined || micros(created_at) < BigInt(created_before),
            )
            .toSorted(orders[sort ?? '-created_at']);
          const found = await walk(client, '/v1/sandboxes', query);
          expect(found.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
        },
      ),
      { numRuns: 75 },
    );
  });

  test('come in the same pages from a merge of label indexes as from the index of one label', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          labels: fc.shuffledSubarray(
            [
              ['team', 'ml'],
              ['gpu', ''],
              ['a"b\\c', 'ü%_'],
              ['team', 'web'],
              ['team', 'ml'],
            ] as [string, string][],
            { minLength: 2 },
          ),
          statuses: fc.subarray(['created', 'starting'] as SandboxStatus[]),
          createdAfter: fc.option(fc.nat(12), { nil: undefined }),
          createdBefore: fc.option(fc.nat(12), { nil: undefined }),
          sort: fc.constantFrom<Sort>('-created_at', 'created_at', 'name'),
          limit: fc.integer({ min: 1, max: 20 }),
        }),
        async ({ createdAfter, createdBefore, sort, limit, ...rest }) => {
          const time = (offset?: number) =>
            offset === undefined ? undefined : instantFromMicros(base + BigInt(offset));
          const filter = {
            ...rest,
            namePrefix: undefined,
            createdAfter: time(createdAfter),
            createdBefore: time(createdBefore),
          };
          let after: [string, string] | undefined;
          for (let more = true; more;) {
            const list = (sql: Sql, sideBySide: boolean) =>
              getSandboxPage(sql, client.org.id, { filter, sort, after, limit, sideBySide });
            const { pool } = service.ctx;
            const [one, other] = await Promise.all([
              list(pool, false),
              mergingLabels(pool, (tx) => list(tx, true)),
            ]);
            expect(other).toEqual(one);
            more = one.length === limit;
            if (more) after = positionOf(one.at(-1)!, sort) as [string, string];
          }
        },
      ),
      { numRuns: 75 },
    );
  });

  test('that are created between two pages neither repeat nor hide others', async () => {
    const mine = await service.newOrg();
    const before: string[] = [];
    for (let index = 0; index < 25; index += 1) {
      before.push((await mine.post('/v1/sandboxes', smallRequest(`before-${index}`))).body.id);
    }
    let made = 0;
    const seen = await walk(mine, '/v1/sandboxes', { limit: 3, sort: '-created_at' }, async () => {
      made += 1;
      await mine.post('/v1/sandboxes', smallRequest(`between-${made}`));
    });
    const ids = seen.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids).toEqual(before.toReversed());
  });

  test('are in the next list after their create', async () => {
    const mine = await service.newOrg();
    for (let index = 0; index < 20; index += 1) {
      const { body } = await mine.post('/v1/sandboxes', smallRequest(`fresh-${index}`));
      expect((await mine.get('/v1/sandboxes', { limit: 1 })).body.data[0].id).toBe(body.id);
      await mine.delete(`/v1/sandboxes/${body.id}`);
      expect((await mine.get('/v1/sandboxes')).body.data).toEqual([]);
    }
  });

  test('need a cursor with the same filters, sort, endpoint and organization, and intact', async () => {
    const other = await service.newOrg();
    const { body } = await client.get('/v1/sandboxes', { limit: 5, labels: '{"team":"ml"}' });
    const cursor: string = body.next_cursor;
    const refused = async (by: Client, path: string, query: Record<string, string>) => {
      const answer = await by.get(path, query);
      expect([answer.status, answer.body.error?.details]).toEqual([400, { parameter: 'cursor' }]);
      return answer.body.error.message as string;
    };
    const same = { labels: '{"team":"ml"}', cursor };
    expect((await client.get('/v1/sandboxes', same)).status).toBe(200);
    // A different page size or another spelling of the same filter keeps the query the same.
    expect(
      (await client.get('/v1/sandboxes', { ...same, labels: ' {"team" : "ml"} ', limit: 7 })).status,
    ).toBe(200);
    expect(await refused(client, '/v1/sandboxes', { cursor })).toContain('another');
    expect(await refused(client, '/v1/sandboxes', { ...same, sort: 'name' })).toContain('another');
    expect(await refused(client, '/v1/events', { cursor })).toContain('another');
    expect(await refused(other, '/v1/sandboxes', same)).toContain('damaged');
    for (let index = 0; index < cursor.length; index += 7) {
      const flipped = cursor.slice(0, index) + (cursor[index] === 'A' ? 'B' : 'A') + cursor.slice(index + 1);
      await refused(client, '/v1/sandboxes', { ...same, cursor: flipped });
    }
  });
});

describe('events', () => {
  let client: Client;
  let model: {
    id: string;
    at: bigint;
    event_type: string;
    category: string;
    actor: any;
    resource: string | null;
  }[];
  const actors = [
    { kind: 'user', user_id: uuidv7(), label: 'Alice', redacted_email: 'a***e@e***.com' },
    { kind: 'api_key', api_key_id: uuidv7(), name: 'ci' },
    { kind: 'system', code: 'reconciler', label: 'Sandkeep' },
    { kind: 'ssh_key', key_id: uuidv7(), fingerprint: 'SHA256:abc', label: null },
  ] as const;
  const actorIds = [actors[0].user_id, actors[1].api_key_id, 'reconciler', actors[3].key_id];
  const resources = [uuidv7(), uuidv7(), null];
  const types = ['api_key_created', 'sandbox_started', 'sandbox_stopped'];

  beforeAll(async () => {
    client = await service.newOrg();
    model = [];
    await dropEvents(service.ctx.pool, client.org.id);
    for (let index = 0; index < 400; index += 1) {
      const event = {
        id: uuidv7(),
        at: base + BigInt(index % 5),
        event_type: types[index % 3]!,
        category: types[index % 3]!.split('_')[0]!,
        actor: actors[index % 4]!,
        resource: resources[index % 3 === 0 ? 2 : index % 2]!,
      };
      model.push(event);
      const content = {
        org_id: client.org.id,
        id: event.id,
        occurred_at: instantFromMicros(event.at),
        event_type: event.event_type,
        category: event.category,
        actor: event.actor,
        payload: [null, 1, 'text', { index }, [index]][index % 5],
        resource_id: event.resource,
      };
      await insertEvent(service.ctx.pool, {
        ...content,
        actor_kind: event.actor.kind,
        actor_id: actorIds[index % 4]!,
        leaf: null,
      });
    }
  });

  test('match a simple model exactly once under every filter, exclusion and page size', async () => {
    const some = (values: string[]) =>
      fc.array(fc.constantFrom(...values, ...values.map((value) => `!${value}`)), {
        minLength: 1,
        maxLength: 3,
      });
    await fc.assert(
      fc.asyncProperty(
        fc.record(
          {
            event_type: some([...types, 'member_removed']),
            category: some(['api', 'sandbox']),
            actor_kind: some(['user', 'api_key', 'system', 'ssh_key']),
            actor_id: some(actorIds),
            resource_id: some(resources.filter((id) => id !== null)),
            since: fc.integer({ min: -1, max: 6 }),
            until: fc.integer({ min: -1, max: 6 }),
            limit: fc.integer({ min: 1, max: 100 }),
          },
          { requiredKeys: [] },
        ),
        async ({ since, until, limit, ...filters }) => {
          fc.pre(since === undefined || until === undefined || since <= until);
          const time = (offset: number) => instantFromMicros(base + BigInt(offset));
          const found = await walk(client, '/v1/events', {
            ...filters,
            ...(since === undefined ? {} : { since: time(since) }),
            ...(until === undefined ? {} : { until: time(until) }),
            ...(limit === undefined ? {} : { limit }),
          });
          const valueOf = (event: (typeof model)[number]) => ({
            event_type: event.event_type,
            category: event.category,
            actor_kind: event.actor.kind,
            actor_id: actorIds[actors.indexOf(event.actor)]!,
            resource_id: event.resource,
          });
          const expected = model
            .filter((event) =>
              Object.entries(filters).every(([column, values]) => {
                const value = valueOf(event)[column as keyof ReturnType<typeof valueOf>];
                const wanted = values.filter((word) => !word.startsWith('!'));
                const unwanted = values.filter((word) => word.startsWith('!')).map((word) => word.slice(1));
                return (
                  (wanted.length === 0 || wanted.includes(value ?? '')) && !unwanted.includes(value ?? '')
                );
              }),
            )
            .filter(({ at }) => since === undefined || at >= base + BigInt(since))
            .filter(({ at }) => until === undefined || at <= base + BigInt(until))
            .toSorted((a, b) => cmp(b.at, a.at) || cmp(b.id, a.id));
          expect(found.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
        },
      ),
      { numRuns: 75 },
    );
  });

  test('match time bounds with digits below the microsecond exactly', async () => {
    const count = async (query: Record<string, string>) =>
      (await walk(client, '/v1/events', { ...query, limit: 100 })).length;
    expect(await count({ since: '2026-03-01T00:00:00.000003Z' })).toBe(160);
    expect(await count({ since: '2026-03-01T00:00:00.0000030001Z' })).toBe(80);
    expect(await count({ until: '2026-03-01T00:00:00.0000019999Z' })).toBe(160);
    expect(await count({ since: '2026-03-01T02:00:00.000004+02:00' })).toBe(80);
    // An unescaped plus arrives as a space.
    const { body } = await client.get('/v1/events', 'since=2026-03-01T02:00:00.000004+02:00&limit=100');
    expect(body.data).toHaveLength(80);
  });

  test('come back as written for all four actors and any payload, also one by one', async () => {
    const all = await walk(client, '/v1/events', { limit: 100 });
    for (const actor of actors) expect(all.map((event) => event.actor)).toContainEqual(actor);
    const payloads = all.map(({ payload }) => JSON.stringify(payload));
    for (const payload of ['null', '1', '"text"', '{"index":3}', '[4]']) expect(payloads).toContain(payload);
    for (const event of all.slice(0, 10))
      expect((await client.get(`/v1/events/${event.id}`)).body).toEqual(event);
    const { status, body } = await client.get(`/v1/events/${uuidv7()}`);
    expect([status, body.error]).toEqual([
      404,
      { code: 'sandbox_not_found', message: 'resource not found', details: null },
    ]);
  });
});

function cmp(a: string | bigint | Buffer, b: string | bigint | Buffer): number {
  if (a instanceof Buffer && b instanceof Buffer) return Buffer.compare(a, b);
  return a < b ? -1 : a > b ? 1 : 0;
}
