import { Readable } from 'node:stream';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { createPartitionsAhead } from '../../../src/audit/events/partitions.js';
import { insertEvent } from '../../../src/audit/events/queries.js';
import { signCheckpoint, type Checkpoint } from '../../../src/audit/log/checkpoint.js';
import { insertDrop } from '../../../src/audit/log/retention-queries.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { enforceWithClockCheck, enforceRetention } from '../../../src/audit/retention/enforce.js';
import { setRetention } from '../../../src/audit/retention/set.js';
import { positionsOf } from '../../../src/audit/verify/verify-file.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { monthsBefore, now } from '../../../src/lib/instant.js';
import { run, runJson, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { tamper, wholeLog } from '../../support/event-log.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service runs with a clock in the middle of a month, and seals and drops events only on request. */
let service: TestService;
let today = '2031-06-15T12:00:00.000000Z';
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => today });
});
afterAll(() => service.close());

const never = new AbortController().signal;
const seal = () => sealEvents(service.ctx, never);
const enforce = () => enforceRetention(service.ctx, never);
const verify = ({ org }: Client) =>
  verifyStore(service.ctx.pool, org.id, { keys: service.ctx.eventKeys().known });
const keep = ({ org }: Client, months: number | null) =>
  setRetention(service.ctx, org.id, months, operator('test'));

async function write({ org }: Client, occurred_at: string): Promise<string> {
  const id = uuidv7();
  const content = {
    org_id: org.id,
    id,
    occurred_at,
    category: 'test',
    event_type: 'test_event',
    actor: operator('test'),
    payload: { of: occurred_at },
    resource_id: null,
  };
  await insertEvent(service.ctx.pool, { ...content, actor_kind: 'system', actor_id: 'operator', leaf: null });
  return id;
}

function verifyAgainst({ org }: Client, exported: string) {
  const reference = { name: 'an export', positions: positionsOf(Readable.from([Buffer.from(exported)])) };
  const { known } = service.ctx.eventKeys();
  return verifyStore(service.ctx.pool, org.id, { keys: known }, { references: [reference] });
}

async function left({ org }: Client): Promise<string[]> {
  const { rows } = await service.ctx.pool.query<{ occurred_at: string }>(
    `select occurred_at from events where org_id = $1 and event_type = 'test_event' order by occurred_at`,
    [org.id],
  );
  return rows.map(({ occurred_at }) => occurred_at.slice(0, 7));
}

async function hasPartition(name: string): Promise<boolean> {
  const { rows } = await service.ctx.pool.query<{ there: boolean }>(
    'select to_regclass($1) is not null as there',
    [name],
  );
  return rows[0]!.there;
}

test('monthsBefore counts back across the turn of the year', () => {
  const month = '2031-02-01T00:00:00.000000Z';
  expect(monthsBefore(month, 1)).toBe('2031-01-01T00:00:00.000000Z');
  expect(monthsBefore(month, 2)).toBe('2030-12-01T00:00:00.000000Z');
  expect(monthsBefore(month, 26)).toBe('2028-12-01T00:00:00.000000Z');
  expect(monthsBefore(month, 999_999)).toBe('0001-01-01T00:00:00.000000Z');
});

test('coming months have partitions unless they already had events', async () => {
  const client = await service.newOrg();
  await write(client, '2031-08-01T00:00:00.000000Z');
  await createPartitionsAhead(service.ctx);
  await write(client, '2031-07-31T23:59:59.999999Z');
  await createPartitionsAhead(service.ctx);
  const { rows } = await service.ctx.pool.query(
    `select tableoid::regclass::text as name from events where org_id = $1 and event_type = 'test_event' order by occurred_at`,
    [client.org.id],
  );
  expect(rows.map(({ name }) => name)).toEqual(['events_2031_07', 'events_other']);
  await seal();
  expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0 });
});

test('due events are removed, the remaining log passes verification, and other organizations keep theirs', async () => {
  const [client, other] = [await service.newOrg(), await service.newOrg()];
  for (const month of ['2031-01', '2031-02', '2031-03', '2031-04', '2031-06']) {
    await service.ctx.pool.query('select make_event_partition($1)', [`${month}-01T00:00:00Z`]);
  }
  for (const time of [
    '2031-01-31T23:59:59.999999Z',
    '2031-02-01T00:00:00.000000Z',
    '2031-03-05T00:00:00.000000Z',
  ]) {
    await write(client, time);
    await write(other, time);
    await seal();
  }
  await enforce();
  expect(await left(client)).toHaveLength(3);

  await keep(client, 4);
  await enforce();
  expect(await left(client)).toEqual(['2031-02', '2031-03']);
  expect(await left(other)).toHaveLength(3);
  await seal();
  expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0 });
  const { body } = await client.get('/v1/events', { event_type: 'events_dropped' });
  // The list includes the four events of the organization's creation, by the clock of this machine.
  expect(body.data).toMatchObject([
    { actor: { code: 'retention' }, payload: { count: 5, dropped_before: '2031-02-01T00:00:00Z' } },
  ]);
  expect(await hasPartition('events_2031_01')).toBe(true);

  // When the other organization drops them too, the whole month goes.
  await keep(other, 3);
  await enforce();
  await seal();
  expect(await left(other)).toEqual(['2031-03']);
  expect(await hasPartition('events_2031_01')).toBe(false);
  expect(await hasPartition('events_2031_02')).toBe(true);
  for (const one of [client, other]) expect(await verify(one)).toMatchObject({ wrong: null });

  // With nothing due, retention writes nothing.
  const before = await wholeLog(service.ctx.pool, client.org.id);
  await enforce();
  await seal();
  expect(await wholeLog(service.ctx.pool, client.org.id)).toEqual(before);
});

test('old events that were written late are dropped from the middle, and the remaining log passes verification', async () => {
  const client = await service.newOrg();
  await write(client, '2031-06-01T00:00:00.000000Z');
  await seal();
  const old = await write(client, '2029-05-05T05:05:05.000000Z');
  await seal();
  await write(client, '2031-06-02T00:00:00.000000Z');
  await seal();
  await keep(client, 1);
  await enforce();
  await seal();
  expect(await left(client)).toEqual(['2031-06', '2031-06']);
  const log = await wholeLog(service.ctx.pool, client.org.id);
  expect(log.find(({ event_id }) => event_id === old)!.event).toBeNull();
  expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0 });
  // A removed event that was not due is still reported.
  const victim = log.findLast(({ event }) => event?.event_type === 'test_event')!;
  await tamper(service.ctx.pool, `delete from events where id = '${victim.event_id}'`);
  expect((await verify(client)).wrong).toMatch(/was removed: retention did not drop it/);
});

describe('verification after tampering with events that are not due', () => {
  /**
   * Entries 1 to 3 record the creation of the organization, by the clock of this machine. The other entries have
   * these times.
   */
  async function kept(): Promise<Client> {
    const client = await service.newOrg();
    for (const day of ['2031-01-01', '2031-05-01', '2031-06-01', '2031-06-02']) {
      await write(client, `${day}T00:00:00.000000Z`);
      await seal();
    }
    const { event_id } = (await wholeLog(service.ctx.pool, client.org.id))[3]!;
    const { rows } = await service.ctx.pool.query('select occurred_at from events where id = $1', [event_id]);
    expect(rows).toEqual([{ occurred_at: '2031-01-01T00:00:00.000000Z' }]);
    await keep(client, 3);
    await seal();
    return client;
  }
  const old = `occurred_at = '2031-01-02'`;
  const ways: Record<string, (of: string) => string[]> = {
    'with its entry, and the next one made to look due': (of) => [
      `delete from event_log where ${of} and seq = 5`,
      `update event_log set ${old} where ${of} and seq = 6`,
      `delete from events where ${of} and occurred_at between '2031-05-01' and '2031-06-01'`,
    ],
    'of which the entry was made to look due': (of) => [
      `update event_log set ${old} where ${of} and seq = 5`,
      `delete from events where ${of} and occurred_at = '2031-05-01'`,
    ],
    'with all entries up to it': (of) => [
      `delete from event_log where ${of} and seq <= 5`,
      `delete from events where ${of} and occurred_at between '2031-01-01' and '2031-05-01'`,
    ],
  };

  test.each(Object.entries(ways))('still reports %s after retention signs a drop', async (_, statements) => {
    const client = await kept();
    await tamper(service.ctx.pool, ...statements(`org_id = '${client.org.id}'`));
    const { wrong } = await verify(client);
    expect(wrong).toMatch(/(entry 5|entries 1 to 5) /);
    for (let pass = 0; pass < 2; pass += 1) {
      await expect(enforce()).rejects.toThrow(client.org.id);
      await seal();
      expect((await verify(client)).wrong).toBe(wrong);
    }
    await keep(client, null);
  });
});

test('verification against an export reports missing kept events, even when a holder of the keys signed a later start', async () => {
  const client = await service.newOrg();
  for (const day of ['2031-01-01', '2031-05-01', '2031-06-01']) {
    await write(client, `${day}T00:00:00.000000Z`);
    await seal();
  }
  const exported = (await client.request('GET', '/v1/events/export', {})).text;
  const check = () => verifyAgainst(client, exported);
  await keep(client, 3);
  await enforce();
  await seal();
  expect((await wholeLog(service.ctx.pool, client.org.id))[0]!.seq).toBe(5);
  expect(await check()).toMatchObject({ wrong: null });

  // An attacker who has the keys.
  const { pool } = service.ctx;
  const { rows } = await pool.query<Checkpoint & Record<string, unknown>>(
    'select org_id, seq, link, at from event_chains where org_id = $1',
    [client.org.id],
  );
  const [base] = await wholeLog(pool, client.org.id);
  const drop = { dropped_before: '2031-03-01T00:00:00.000000Z', base_seq: base!.seq, base_link: base!.link };
  await insertDrop(pool, signCheckpoint(service.ctx.eventKeys(), { ...rows[0]!, ...drop }));
  await tamper(
    pool,
    `delete from events where id = '${base!.event_id}'`,
    `delete from event_log where event_id = '${base!.event_id}'`,
  );
  expect((await verify(client)).wrong).toBeNull();
  expect((await check()).wrong).toBe(
    'the log begins after entry 5, but an export has entry 5 of 2031-05-01T00:00:00Z: it was removed, and retention did not drop it',
  );
  await keep(client, null);
});

test('verification names an inserted event even when the log begins with it', async () => {
  const client = await service.newOrg();
  await write(client, '2031-01-01T00:00:00.000000Z');
  await service.ctx.pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
     values ($1, $2, '2031-05-01', 'test', 'test_event', '{"kind":"system","code":"test","label":"Test"}', '{}', 'system', 'test')`,
    [client.org.id, uuidv7()],
  );
  await seal();
  await keep(client, 3);
  const inserted = /^entry 5 .* was inserted: it has no mark of the event keys/;
  expect((await verify(client)).wrong).toMatch(inserted);
  await enforce();
  await seal();
  expect((await wholeLog(service.ctx.pool, client.org.id))[0]!.seq).toBe(5);
  expect((await verify(client)).wrong).toMatch(inserted);
  await keep(client, null);
});

test('events that a signed drop names but that still exist pass verification, and the next pass removes them', async () => {
  const client = await service.newOrg();
  await write(client, '2030-01-01T00:00:00.000000Z');
  await keep(client, 3);
  const stopping = new AbortController();
  const now = () => {
    // Retention reads the clock once an organization, and again before it signs. The second reading aborts it.
    stopping.abort();
    return today;
  };
  const others = await service.ctx.pool.query<{ org_id: string; retention_months: number }>(
    'update event_chains set retention_months = null where org_id <> $1 returning org_id',
    [client.org.id],
  );
  expect(others.rows.length).toBeGreaterThan(0);
  await enforceRetention({ ...service.ctx, now }, stopping.signal);
  expect(await left(client)).toEqual(['2030-01']);
  await seal();
  expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0 });
  await enforce();
  expect(await left(client)).toEqual([]);
  expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0 });
  const { body } = await client.get('/v1/events', { event_type: 'events_dropped' });
  expect(body.data).toHaveLength(1);
});

test('a log whose events were all due continues with the next number', async () => {
  const client = await service.newOrg();
  await write(client, '2031-06-03T00:00:00.000000Z');
  await seal();
  await keep(client, 2);
  today = '2032-06-15T12:00:00.000000Z';
  const { seq } = (await wholeLog(service.ctx.pool, client.org.id)).at(-1)!;
  await enforce();
  await seal();
  const log = await wholeLog(service.ctx.pool, client.org.id);
  // The clock of this machine dated the event that records the retention setting. Its month is due, too.
  expect(log[0]!.seq).toBe(seq + 2);
  expect(log.map(({ event }) => event?.event_type)).toEqual(['events_dropped']);
  expect(await verify(client)).toMatchObject({ wrong: null });
});

test('a retention setting with a forged signature drops nothing, in that organization alone', async () => {
  const [client, other] = [await service.newOrg(), await service.newOrg()];
  for (const one of [client, other]) {
    await write(one, '2030-01-01T00:00:00.000000Z');
    await keep(one, 600);
  }
  await keep(other, 3);
  await seal();
  for (const set of ['retention_months = 1', 'retention_months = 1, retention_signature = null']) {
    await tamper(service.ctx.pool, `update event_chains set ${set} where org_id = '${client.org.id}'`);
    await expect(enforce()).rejects.toThrow(client.org.id);
    expect((await verify(client)).wrong).toBe(
      'the retention of 1 months was changed: the service did not sign it',
    );
    expect([await left(client), await left(other)]).toEqual([['2030-01'], []]);
  }
  // Setting the retention again repairs the setting, also with the same value.
  await tamper(
    service.ctx.pool,
    `update event_chains set retention_months = 600 where org_id = '${client.org.id}'`,
  );
  expect(await keep(client, 600)).toEqual({ before_months: 600, after_months: 600 });
  expect((await verify(client)).wrong).toBeNull();
});

test('a forged record of a drop stays, and blocks retention for that organization', async () => {
  const [client, other] = [await service.newOrg(), await service.newOrg()];
  for (const one of [client, other]) {
    await write(one, '2030-01-01T00:00:00.000000Z');
    await write(one, '2032-06-01T00:00:00.000000Z');
    await keep(one, 3);
  }
  await seal();
  await tamper(
    service.ctx.pool,
    `insert into event_drops (org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature)
     select org_id, seq, link, at, '2032-06-10', 1, link, key_id, signature from event_chains
     where org_id = '${client.org.id}'`,
  );
  await expect(enforce()).rejects.toThrow(client.org.id);
  expect([await left(client), await left(other)]).toEqual([['2030-01', '2032-06'], ['2032-06']]);
  expect((await verify(client)).wrong).toMatch(/has a wrong signature/);
  await tamper(service.ctx.pool, `delete from event_drops where org_id = '${client.org.id}'`);
  await enforce();
  expect(await left(client)).toEqual(['2032-06']);
});

test('retention drops nothing while the clocks of machine and database are far apart', async () => {
  const client = await service.newOrg();
  await write(client, '2030-01-01T00:00:00.000000Z');
  await keep(client, 3);
  await expect(enforceWithClockCheck(service.ctx, never)).rejects.toThrow('more than a day apart');
  expect(await left(client)).toEqual(['2030-01']);
  await enforceWithClockCheck({ ...service.ctx, now }, never);
  await keep(client, null);
});

test('the command sets the retention, and records one event per change', async () => {
  const client = await service.newOrg();
  const words = ['events', 'retention', '--org', client.org.slug, '--database-url', urlOf(service.database)];
  expect((await run([...words, '--months', '24'])).err).toContain(
    'the event keys of the service, which are missing',
  );
  words.push('--data-dir', service.directory);
  expect(await runJson([...words, '--months', '24'])).toEqual({ before_months: null, after_months: 24 });
  expect(await runJson([...words, '--months', '24'])).toEqual({ before_months: 24, after_months: 24 });
  expect(await runJson([...words, '--months', 'forever'])).toEqual({ before_months: 24, after_months: null });
  expect((await run([...words, '--months', '0'])).err).toMatch(
    /--months must be "forever" or a whole number/,
  );
  const { body } = await client.get('/v1/events', { event_type: 'event_retention_changed' });
  expect(body.data.map(({ payload }: any) => payload.after_months)).toEqual([null, 24]);
});
