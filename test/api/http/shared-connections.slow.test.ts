import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { FIRST_ID } from '../../../src/audit/list/page-queries.js';
import { isUnreachable, Overloaded, type Sql, type Statement } from '../../../src/db/pool.js';
import { prepared } from '../../../src/db/prepared.js';
import { MOST_MS, openReads, READERS, type Reads } from '../../../src/db/pipelined-reads.js';
import { openRequests } from '../../../src/db/request-connections.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { sleep } from '../../../src/lib/sleep.js';
import { getSandboxPage } from '../../../src/sandboxes/reads/list-queries.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { sentDuring } from '../../support/query-plans.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let orgs: Client[];
let reads: Reads;
const opened: Reads[] = [];

beforeAll(async () => {
  service = await startTestService({ worker: false });
  orgs = [];
  for (let index = 0; index < 4; index += 1) orgs.push(await service.newOrg());
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((each) => each.close()));
});
afterAll(() => service.close());

function open(): Reads {
  const each = openReads(service.database, true, () => undefined);
  opened.push(each);
  return each;
}

/** The organizations that a statement without an organization returns. */
async function seenBy(orgId: string): Promise<string[]> {
  const { rows } = await reads.query<{ id: string }>(orgId, prepared('select id from orgs', []));
  return rows.map(({ id }) => id);
}

function anyOrg(): string {
  return orgs[Math.floor(Math.random() * orgs.length)]!.org.id;
}

async function sessions(condition: string): Promise<number> {
  const { rows } = await service.ctx.pool.query(
    `select from pg_stat_activity where datname = current_database() and ${condition}`,
    [READERS],
  );
  return rows.length;
}

/** Cancels or ends the statements of the readers of this database. */
async function interfere(how: 'pg_cancel_backend' | 'pg_terminate_backend'): Promise<void> {
  await service.ctx.pool.query(
    `select ${how}(pid) from pg_stat_activity where datname = current_database() and application_name = $1`,
    [READERS],
  );
}

test('hundreds of concurrent reads each return only their own organization', async () => {
  reads = open();
  const asked = Array.from({ length: 1_000 }, anyOrg);
  expect(await Promise.all(asked.map(seenBy))).toEqual(asked.map((id) => [id]));
  // The connections of this test; the service has opened none.
  expect(await sessions('application_name = $1')).toBe(2);
});

test('reads return only their own organization while connections end and statements are cancelled at random', async () => {
  reads = open();
  let answered = 0;
  let failed = 0;
  const stop = new AbortController();
  const readers = Array.from({ length: 100 }, async () => {
    while (!stop.signal.aborted) {
      const orgId = anyOrg();
      try {
        expect(await seenBy(orgId)).toEqual([orgId]);
        answered += 1;
      } catch (error) {
        if (!(error instanceof Overloaded) && !isUnreachable(error)) throw error;
        failed += 1;
      }
    }
  });
  for (let round = 0; round < 60; round += 1) {
    await interfere(round % 3 === 0 ? 'pg_terminate_backend' : 'pg_cancel_backend');
    const before = answered;
    // Between two interruptions at least one read succeeds, so the test observes answers.
    await until(async () => Promise.resolve(answered > before), Boolean);
  }
  stop.abort();
  await Promise.all(readers);
  expect(failed).toBeGreaterThan(0);
});

test('statements pipelined after a failed setting return no rows', async () => {
  reads = open();
  const [before, after] = orgs.map(({ org }) => org.id) as [string, string];
  // Both connections serve the first organization.
  await Promise.all(Array.from({ length: 10 }, () => seenBy(before)));
  await service.ctx.pool.query(
    'revoke execute on function pg_catalog.set_config(text, text, boolean) from public',
  );
  try {
    const asked = Array.from({ length: 40 }, (_, index) => (index < 20 ? before : after));
    const outcomes = await Promise.allSettled(asked.map(seenBy));
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.status === 'fulfilled') expect(outcome.value).toEqual([asked[index]]);
      else expect(isUnreachable(outcome.reason)).toBe(true);
    }
    expect(outcomes.slice(0, 20).every(({ status }) => status === 'fulfilled')).toBe(true);
    expect(outcomes.slice(20).every(({ status }) => status === 'rejected')).toBe(true);
  } finally {
    await service.ctx.pool.query(
      'grant execute on function pg_catalog.set_config(text, text, boolean) to public',
    );
  }
  expect(await seenBy(after)).toEqual([after]);
});

test('a failed statement leaves the previous and the next ones intact', async () => {
  reads = open();
  const ids = orgs.map(({ org }) => org.id);
  const asked = Array.from({ length: 60 }, (_, index) => ids[index % ids.length]!);
  const outcomes = await Promise.allSettled(
    asked.map((id, index) =>
      index % 3 === 0 ? reads.query(id, prepared('select 1 / (length($1) - length($1))', ['x'])) : seenBy(id),
    ),
  );
  for (const [index, outcome] of outcomes.entries()) {
    if (index % 3 !== 0) expect(outcome).toEqual({ status: 'fulfilled', value: [asked[index]] });
    else expect(outcome).toMatchObject({ status: 'rejected', reason: { code: '22012' } });
  }
});

test('a read whose connection ends in progress is answered 503, and the next read succeeds', async () => {
  const [client] = orgs as [Client];
  const { body: sandbox } = await client.post('/v1/sandboxes', smallRequest('read'));
  const ask = () =>
    fetch(`${client.url}/v1/sandboxes/${sandbox.id}`, { headers: { authorization: `Bearer ${client.key}` } });
  expect((await ask()).status).toBe(200);
  await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('lock table sandboxes in access exclusive mode');
    const asked = Promise.all(Array.from({ length: 8 }, ask));
    await until(
      () => sessions("application_name = $1 and wait_event_type = 'Lock'"),
      (count) => count === 2,
    );
    // Some reads may start so late that they get a new connection.
    const ending: Promise<void>[] = [];
    const rude = setInterval(() => ending.push(interfere('pg_terminate_backend')), 100);
    const answers = await asked.finally(() => clearInterval(rude));
    // Else a late one ends the connection of the next read.
    await Promise.all(ending);
    await interfere('pg_terminate_backend');
    await until(
      () => sessions('application_name = $1'),
      (count) => count === 0,
    );
    for (const answer of answers) {
      expect([answer.status, answer.headers.get('retry-after'), await answer.json()]).toEqual([
        503,
        '1',
        { error: { code: 'not_ready', message: 'the service cannot reach its database', details: null } },
      ]);
    }
  });
  expect((await ask()).status).toBe(200);
});

test('a connection without answers for too long is closed, and new ones open', async () => {
  reads = openReads(service.database, true, () => undefined, { silenceMs: 3_000, lookEveryMs: 200 });
  opened.push(reads);
  const orgId = anyOrg();
  expect(await seenBy(orgId)).toEqual([orgId]);
  await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('lock table orgs in access exclusive mode');
    const asked = await Promise.allSettled(Array.from({ length: 4 }, () => seenBy(orgId)));
    expect(asked.map((each) => each.status === 'rejected' && isUnreachable(each.reason))).toEqual(
      asked.map(() => true),
    );
  });
  // Statements that were cut off may still wait for the lock; new reads do not. A busy machine may delay one for longer
  // than a connection may be silent.
  const seen = await until(
    () => seenBy(orgId).catch(() => []),
    (ids) => ids.length > 0,
  );
  expect(seen).toEqual([orgId]);
});

test('a locked table delays reads briefly: they answer 503, and succeed once it is free', async () => {
  const [client] = orgs as [Client];
  const ask = async (path: string) => {
    const response = await fetch(`${client.url}${path}`, {
      headers: { authorization: `Bearer ${client.key}` },
    });
    return [response.status, response.headers.get('retry-after'), ((await response.json()) as any).error];
  };
  const message = 'the database does not keep up with what is asked';
  const refused = [503, '1', { code: 'not_ready', message, details: null }];
  const askMany = () => Promise.all(Array.from({ length: 12 }, () => ask('/v1/sandboxes')));
  // Both connections have prepared it.
  await askMany();
  await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('lock table sandboxes in access exclusive mode');
    const first = askMany();
    await sleep(MOST_MS + 200);
    // These reads queue after the blocked ones, although their table is free. The lock is still held when they are
    // answered.
    expect(await ask('/v1/events')).toEqual(refused);
    await interfere('pg_cancel_backend');
    const cancels = setInterval(() => void interfere('pg_cancel_backend'), 50);
    const answers = await first.finally(() => clearInterval(cancels));
    expect(answers).toEqual(answers.map(() => refused));
  });
  // The last cancellation may still arrive, and a busy machine may take longer than a short read has.
  for (const path of ['/v1/sandboxes', '/v1/events']) {
    await until(
      () => ask(path),
      ([status]) => status === 200,
    );
  }
});

test.each([
  ['limit=20', true],
  ['sort=name', true],
  ['created_after=2026-01-01T00:00:00Z', true],
  ['labels=%7B%22a%22%3A%22b%22%7D', true],
  ['sort=name&created_before=1970-01-01T00:00:00Z', false],
  ['sort=name&created_after=2026-01-01T00:00:00Z', false],
  ['sort=name&labels=%7B%22a%22%3A%22b%22%7D', false],
  ['name_prefix=a', false],
  ['status=failed', false],
])('the list query %s is a short read: %s', async (query, isShort) => {
  const sent = await sentDuring(async () => {
    expect((await orgs[0]!.get('/v1/sandboxes', query)).status).toBe(200);
  });
  expect(sent.filter(({ text }) => text.includes('order by')).map(({ shared }) => shared)).toEqual([isShort]);
});

test('a statement whose table changed after it was prepared still succeeds', async () => {
  const { pool } = service.ctx;
  const requests = openRequests(service.database, false, () => undefined);
  await pool.query('create table changing (value int)');
  try {
    await pool.query('insert into changing values (7)');
    const own = requests.of(anyOrg()).pool;
    const ask = (tx: Sql) => tx.query(prepared('select value from changing', []));
    const inOne = () => inTransaction(own, async (tx) => (await ask(tx)).rows);
    expect(await inOne()).toEqual([{ value: 7 }]);
    await pool.query('alter table changing alter value type text');
    expect(await inOne()).toEqual([{ value: '7' }]);
    // A single read may fail once, and leaves no connection that would fail again.
    await pool.query('alter table changing alter value type int using value::int');
    await expect(ask(own)).rejects.toThrow('cached plan');
    expect((await ask(own)).rows).toEqual([{ value: 7 }]);
  } finally {
    await requests.close();
    await pool.query('drop table changing');
  }
});

test('close answers the reads in progress, then closes the connections', async () => {
  const closing = openReads(service.database, true, () => undefined);
  const orgId = anyOrg();
  const { slow, closed } = await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('select pg_advisory_xact_lock(4711)');
    const reading = closing.query(orgId, 'select pg_advisory_xact_lock_shared(4711), 1 as done');
    await until(
      () => sessions("application_name = $1 and wait_event = 'advisory'"),
      (count) => count === 1,
    );
    return { slow: [reading], closed: [closing.close()] };
  });
  expect((await slow[0]!).rows).toMatchObject([{ done: 1 }]);
  await closed[0];
  await expect(closing.query(orgId, 'select 1')).rejects.toThrow('closed');
});

const listed = { statuses: [], namePrefix: undefined, createdAfter: undefined, createdBefore: undefined };

/** Whether the list of sandboxes with this many labels is a named statement. */
async function isListNamed(labels: number): Promise<boolean> {
  const asked: unknown[] = [];
  const recorder: Sql = {
    query(statement) {
      asked.push(statement);
      return Promise.resolve({ rows: [], rowCount: 0 });
    },
  };
  const filter = {
    ...listed,
    labels: Array.from({ length: labels }, (_, index): [string, string] => [`k${index}`, 'v']),
  };
  await getSandboxPage(recorder, FIRST_ID, { filter, sort: '-created_at', limit: 21 });
  return (asked[0] as Statement).name !== undefined;
}

test('a caller that lists with ever other filters leaves statement names for common lists', async () => {
  expect(await isListNamed(1)).toBe(true);
  for (let labels = 2; labels < 200; labels += 1) await isListNamed(labels);
  expect(await isListNamed(200)).toBe(false);
  expect(await isListNamed(1)).toBe(true);
  expect(await isListNamed(0)).toBe(true);
  expect(prepared('select 1', []).name).toBeDefined();
});

test('a text is prepared under one name, and later texts get none once the names are used up', () => {
  const first = prepared('select $1::int', [1]);
  expect(prepared(['select', '$1::int'].join(' '), [2])).toEqual({ ...first, values: [2] });
  expect(first.name).toBeDefined();
  const names = Array.from({ length: 1_000 }, (_, index) => prepared(`select ${index}`, []).name);
  expect(names[999]).toBeUndefined();
  const given = names.filter((name) => name !== undefined);
  expect(new Set(given).size).toBe(given.length);
});
