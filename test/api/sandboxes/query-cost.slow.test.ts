import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findSpan } from '../../../src/audit/log/log-queries.js';
import { connectAlone, type Pool } from '../../../src/db/pool.js';
import { addMillis, now, type Instant } from '../../../src/lib/instant.js';
import { COUNTED, IN_ORDER, SEARCHED } from '../../../src/sandboxes/reads/list-queries.js';
import { sandboxesToReconcile } from '../../../src/sandboxes/reconcile/queries.js';
import { loadPlenty, ONE_IN } from '../../support/bulk-rows.js';
import type { Client } from '../../support/client.js';
import { costOf, PLANNED, sentDuring, type Cost, type Sent } from '../../support/query-plans.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

/**
 * Records the statements behind each frequent read over HTTP in a large store, and explains each one to bound its cost.
 */

const DAYS = 240;
const SANDBOXES = 20_000;
const EVENTS = 200_000;
const KEYS = 3_000;
/** For a table with fewer rows a sequential scan is as fast. */
const SMALL = 500;

let service: TestService;
let client: Client;
let session: Awaited<ReturnType<typeof connectAlone>>;
let until: Instant;
let sandbox: { id: string; name: string };
let event: { id: string };
/** The resource of many events. */
let resource: string;
/** The tables that grow. */
let large: Set<string>;

beforeAll(async () => {
  service = await startTestService({ worker: false });
  const { pool } = service.ctx;
  session = await connectAlone(service.database);
  until = now();
  client = await service.newOrg();
  const sizes = [
    { in: client, sandboxes: SANDBOXES, events: EVENTS },
    ...[1, 2].map(() => ({ in: undefined, sandboxes: 2_000, events: 10_000 })),
  ];
  for (const { in: given, sandboxes, events } of sizes) {
    const one = given ?? (await service.newOrg());
    await one.post('/v1/sandboxes', smallRequest('first'));
    await loadPlenty(session, one.org.id, { sandboxes, events, runs: 1, until, days: DAYS });
  }
  await makeKeys(pool, client.org.id);
  await session.query('vacuum analyze');
  const { rows } = await session.query<{ name: string }>(
    "select relname as name from pg_class where relkind = 'r' and reltuples > $1",
    [SMALL],
  );
  large = new Set(rows.map(({ name }) => name));
  expect([...large]).toEqual(
    expect.arrayContaining(['sandboxes', 'sandbox_labels', 'event_log', 'api_keys']),
  );
  const { body } = await client.get('/v1/sandboxes', {
    name_prefix: `box-${String(SANDBOXES / 2).padStart(6, '0')}`,
    sort: 'name',
    limit: 1,
  });
  sandbox = body.data[0];
  const events = await client.get('/v1/events', { until: addMillis(until, -DAYS * 43_200_000) });
  event = events.body.data[7];
  const about = await session.query<{ resource_id: string }>(
    'select resource_id from events where org_id = $1 and resource_id is not null limit 1',
    [client.org.id],
  );
  resource = about.rows[0]!.resource_id;
});

afterAll(async () => {
  await session?.end();
  await service?.close();
});

async function makeKeys(pool: Pool, orgId: string): Promise<void> {
  await pool.query(
    `insert into api_keys (org_id, id, name, prefix, hash, created_at, created_by)
     select org_id, gen_random_uuid(), 'key', md5(n::text), sha256(n::text::bytea), created_at, created_by
     from (select * from api_keys where org_id = $1 limit 1) k cross join generate_series(1, $2::int) n`,
    [orgId, KEYS],
  );
}

interface Bounds {
  /** The number of rows of an answer. */
  page: number;
  /** The number of merged lists: a page of each is read, and sorted. */
  lists?: number;
  /** The number of rows read for each listed row: from an index, from a table, and skipped. */
  each?: number;
}

/** Sends a request, checks the cost of each statement and returns the answer. */
async function asked(path: string, { page, lists = 1, each = 4 }: Bounds): Promise<any> {
  let body: any;
  // The first request also fills the caches.
  const sent = await sentDuring(async () => {
    const answer = await client.get(path);
    expect(answer.status, answer.text).toBe(200);
    ({ body } = answer);
  });
  expect(sent.length, 'statements that were seen').toBeGreaterThan(0);
  for (const statement of sent) await expectBounded(statement, { page, lists, each });
  return body;
}

async function expectBounded(statement: Sent, { page, lists, each }: Required<Bounds>): Promise<void> {
  const most = (page + 10) * lists;
  for (const planned of PLANNED) {
    const cost = await costOf(session, statement, client.org.id, planned);
    const { rows, sorted, buffers, walked } = cost;
    const how = `${planned} of ${statement.text}\n${values(statement)}\n${outline(cost)}`;
    expect(
      walked.filter((table) => large.has(table)),
      `read from end to end, ${how}`,
    ).toEqual([]);
    expect(sorted, `sorted at once, ${how}`).toBeLessThanOrEqual(most);
    expect(rows, `rows read, ${how}`).toBeLessThanOrEqual(most * each);
    expect(buffers, `pages read, ${how}`).toBeLessThanOrEqual(most * each * 3);
  }
}

const values = ({ values: given }: Sent) => JSON.stringify(given).slice(0, 500);

/** The plan as text, for the message of a failure. */
function outline({ plan }: Cost): string {
  const lines: string[] = [];
  const walk = (node: Cost['plan'], depth: number) => {
    const { Plans: inner = [], ...own } = node;
    const {
      'Node Type': type,
      'Relation Name': table = '',
      'Actual Rows': rows,
      'Actual Loops': loops,
    } = own;
    const removed = own['Rows Removed by Filter'] ?? 0;
    lines.push(`${'  '.repeat(depth)}${type} ${table} rows=${rows} loops=${loops} removed=${removed}`);
    for (const each of inner) walk(each, depth + 1);
  };
  walk(plan, 1);
  return lines.join('\n');
}

const labelled = (labels: Record<string, string>) => `labels=${encodeURIComponent(JSON.stringify(labels))}`;
const rare = Math.ceil(SANDBOXES / ONE_IN.rare);

describe('the cost of reading sandboxes', () => {
  test('is bounded for one by its id', async () => {
    expect((await asked(`/v1/sandboxes/${sandbox.id}`, { page: 1 })).name).toBe(sandbox.name);
  });

  test('is bounded for one by its name', async () => {
    expect((await asked(`/v1/sandboxes/by-name/${sandbox.name}`, { page: 1 })).id).toBe(sandbox.id);
  });

  test.each([
    ['newest first', '', 20],
    ['a long page', 'limit=100', 100],
    ['oldest first', 'sort=created_at', 20],
    ['by name', 'sort=name', 20],
    ['of a status', 'status=failed', 20],
    ['of a status, oldest first', 'status=failed&sort=created_at', 20],
    ['of the beginning of a name', 'name_prefix=box-0010&sort=name', 20],
    ['made in a time', 'created_after=2000-01-01T00:00:00Z&created_before=2100-01-01T00:00:00Z', 20],
    ['with a common label', labelled({ common: 'yes' }), 20],
    ['with a common label, oldest first', `${labelled({ common: 'yes' })}&sort=created_at`, 20],
    ['with a rare label', labelled({ rare: 'yes' }), rare],
  ])('is bounded for a list, %s, and its next page', async (_, query, page) => {
    const first = await asked(`/v1/sandboxes?${query}`, { page });
    expect(first.data).toHaveLength(page);
    if (first.next_cursor === null) return;
    const next = await asked(`/v1/sandboxes?${query}&cursor=${first.next_cursor}`, { page });
    expect(next.data).toHaveLength(page);
  });

  test('is bounded for a list with a rare and a common label', async () => {
    const query = labelled({ rare: 'yes', team: 'team-1' });
    // Each label is counted up to this limit, starting with the rarer one.
    const { data } = await asked(`/v1/sandboxes?${query}`, { page: 2 * COUNTED, each: 2 });
    expect(data).toHaveLength(rare);
  });

  test('is bounded for a list with two common labels that no sandbox has together', async () => {
    const query = labelled({ left: 'yes', right: 'yes' });
    // The index of labels alone is scanned for all sandboxes with one of them.
    const { data } = await asked(`/v1/sandboxes?${query}`, { page: SANDBOXES / ONE_IN.left, each: 2 });
    expect(data).toEqual([]);
  });
});

describe('the cost of a search by the middle of a name', () => {
  test('is bounded for each page, and all pages find all sandboxes', async () => {
    // The names of the store are box-000001 and so on, and the last ones have this in them.
    const part = `X-${String(SANDBOXES - 1)
      .padStart(6, '0')
      .slice(0, 5)}`;
    const found: string[] = [];
    let pages = 0;
    for (const setting of IN_ORDER) await session.query(`set ${setting}`);
    for (let cursor: string | null = ''; cursor !== null; pages += 1) {
      const query = `name_contains=${part}&sort=name${cursor === '' ? '' : `&cursor=${cursor}`}`;
      const page = await asked(`/v1/sandboxes?${query}`, { page: SEARCHED, each: 2 });
      found.push(...page.data.map(({ name }: { name: string }) => name));
      expect(page.has_more).toBe(page.next_cursor !== null);
      cursor = page.next_cursor;
    }
    await session.query('reset all');
    expect(pages).toBe(Math.ceil(SANDBOXES / SEARCHED));
    const { rows } = await session.query<{ name: string }>(
      `select name from sandboxes
       where org_id = $1 and removed_at is null and not warm and name ilike '%' || $2 || '%' order by name`,
      [client.org.id, part],
    );
    expect(found).toEqual(rows.map(({ name }) => name));
    expect(found.length).toBeGreaterThan(5);
  });
});

describe('the cost of reading audit events', () => {
  const since = (days: number) => `since=${addMillis(until, -days * 86_400_000)}`;

  test.each<[what: string, query: () => string, page: number, lists?: number]>([
    ['newest first', () => '', 20],
    ['a long page', () => 'limit=100', 100],
    ['of a type', () => 'event_type=sandbox_started', 20],
    ['of a rare type', () => 'event_type=api_key_created', 20],
    ['of an absent type', () => 'event_type=webhook_deleted', 0],
    [
      'of a type and a time',
      () => `event_type=sandbox_started&${since(90)}&until=${addMillis(until, -60 * 86_400_000)}`,
      20,
    ],
    ['of a time', () => `${since(90)}&until=${addMillis(until, -60 * 86_400_000)}`, 20],
    ['of several types', () => 'event_type=api_key_created&event_type=sandbox_started', 20, 2],
    ['of a category', () => 'category=apikey', 20],
    ['of a resource', () => `resource_id=${resource}`, 20],
    ['of an actor', () => 'actor_id=actor-3', 20],
    ['but for a type', () => 'event_type=!sandbox_started', 20],
    ['but for an actor', () => 'actor_id=!actor-3', 20],
  ])('is bounded for a page, %s, and its next page', async (_, query, page, lists = 1) => {
    const first = await asked(`/v1/events?${query()}`, { page, lists });
    expect(first.data).toHaveLength(page);
    if (first.next_cursor === null) return;
    const next = await asked(`/v1/events?${query()}&cursor=${first.next_cursor}`, { page, lists });
    expect(next.data).toHaveLength(page);
  });

  test('is bounded for the end of the log in an export up to a time', async () => {
    const { pool } = service.ctx;
    const { rows } = await session.query<{ end: number }>(
      'select max(seq) as end from event_log where org_id = $1',
      [client.org.id],
    );
    const afterSeq = rows[0]!.end - 100;
    const during = { since: undefined, until: addMillis(until, 86_400_000) };
    const sent = await sentDuring(async () => {
      expect(await findSpan(pool, client.org.id, during, { afterSeq })).toEqual({
        first: afterSeq + 1,
        last: afterSeq + 100,
      });
    });
    expect(sent).toHaveLength(1);
    await expectBounded(sent[0]!, { page: 100, lists: 1, each: 4 });
  });

  test('is bounded for one by its id', async () => {
    expect((await asked(`/v1/events/${event.id}`, { page: 1 })).id).toBe(event.id);
  });
});

describe('the cost of internal reads', () => {
  test('is bounded for a pass of the reconciler', async () => {
    const worker = { id: sandbox.id, runtime: 'simulated' };
    const held = [{ orgId: client.org.id, sandboxId: sandbox.id }];
    const sent = await sentDuring(() => sandboxesToReconcile(service.ctx.pool, worker, held));
    expect(sent).toHaveLength(1);
    // A twentieth is removed and was never placed: these rows are returned, and no others are read.
    await expectBounded(sent[0]!, { page: SANDBOXES / 20, lists: 1, each: 2.2 });
  });

  test('is bounded for an API key that is not cached', async () => {
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const sent = await sentDuring(() => client.get('/v1/me/org'));
    expect(sent.some(({ text }) => text.includes('api_key_replaced_secrets'))).toBe(true);
    for (const statement of sent) await expectBounded(statement, { page: 1, lists: 1, each: 4 });
  });

  test('is bounded for quotas and their usage', async () => {
    const body = await asked('/v1/quotas', { page: DAYS });
    expect(body.total_sandboxes).toBeGreaterThan(SANDBOXES / 2);
    expect(body.vcpu_hours_used).toBeGreaterThan(0);
  });

  test('is bounded for the usage of a month', async () => {
    expect((await asked('/v1/billing/usage', { page: DAYS })).daily.length).toBeGreaterThan(0);
  });
});
