import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { recordEvent } from '../../../src/audit/events/record.js';
import { instantFromMicros, microsOf } from '../../../src/lib/instant.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

const EVENTS = 100_000;
const MICROS = 7;
const FIRST = microsOf('2027-03-31T23:59:59.999997Z');

/** The instants lie on both sides of the turn of a month, so in two partitions. */
let service: TestService;
let client: Client;
let ids: Set<string>;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  const { pool } = service.ctx;
  for (const month of ['2027-03-01', '2027-04-01']) {
    await pool.query(`select make_event_partition('${month}T00:00:00Z')`);
  }
  await pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
     select $1, gen_random_uuid(), $2::timestamptz + (n % $3) * interval '1 microsecond', 'test',
       case when n % 1000 = 0 then 'rare_event' else 'test_event' end,
       '{"kind":"system","code":"operator","label":"test"}', 'null', 'system', 'operator'
     from generate_series(1, $4) n`,
    [client.org.id, instantFromMicros(FIRST), MICROS, EVENTS],
  );
  await pool.query('analyze events');
  const { rows } = await pool.query<{ id: string }>('select id from events where org_id = $1', [
    client.org.id,
  ]);
  ids = new Set(rows.map(({ id }) => id));
});
afterAll(() => service.close());

/** Reads all pages of a list. `sizes`: the page sizes, used in rotation. */
async function walk(
  query: Record<string, string>,
  sizes: readonly number[],
  between: () => Promise<void>,
): Promise<string[]> {
  const found: string[] = [];
  for (let [cursor, page]: [string | undefined, number] = [undefined, 0]; ; page += 1) {
    const limit = sizes[page % sizes.length]!;
    const { status, body } = await client.get('/v1/events', {
      ...query,
      limit,
      ...(cursor ? { cursor } : {}),
    });
    expect([status, body.data.length === limit || !body.has_more]).toEqual([200, true]);
    found.push(...body.data.map(({ id }: { id: string }) => id));
    if (!body.has_more) return found;
    cursor = body.next_cursor;
    await between();
  }
}

/** Adds one event at one of the same microseconds, before or after the position of a reader. */
async function write(random: number): Promise<void> {
  const at = instantFromMicros(FIRST + BigInt(random % MICROS));
  const payload = { name: 'Org', slug: 'org' };
  await recordEvent(service.ctx.pool, {
    orgId: client.org.id,
    type: 'org_created',
    actor: operator('test'),
    resourceId: null,
    at,
    payload,
  });
}

test(`paging through ${EVENTS} events at ${MICROS} microseconds gives each existing event once during concurrent writes`, async () => {
  let random = 0;
  const sizes = Array.from({ length: 100 }, (_, index) => 100 - index);
  const found = await walk({}, sizes, async () => {
    random += 1;
    if (random % 10 === 0) await write(random);
  });
  expect(new Set(found).size).toBe(found.length);
  const known = new Set(found);
  expect([...ids].filter((id) => !known.has(id))).toEqual([]);
});

test('every page size and every range of microseconds gives each event exactly once', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 100 }),
      fc.nat(MICROS - 1),
      fc.nat(MICROS - 1),
      async (limit, one, other) => {
        const [since, until] = [Math.min(one, other), Math.max(one, other)].map((micros) =>
          instantFromMicros(FIRST + BigInt(micros)),
        );
        const range = { event_type: 'rare_event', since: since!, until: until! };
        const found = await walk(range, [limit], () => write(limit));
        const { rows } = await service.ctx.pool.query<{ id: string }>(
          `select id from events where org_id = $1 and event_type = 'rare_event' and occurred_at between $2 and $3
           order by occurred_at desc, id desc`,
          [client.org.id, since, until],
        );
        expect(found).toEqual(rows.map(({ id }) => id));
      },
    ),
    {
      numRuns: 30,
      examples: Array.from({ length: 5 }, (_, index): [number, number, number] => [
        [1, 2, 3, 99, 100][index]!,
        0,
        6,
      ]),
    },
  );
});
