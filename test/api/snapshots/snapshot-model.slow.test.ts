import { expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { CaptureRefusedError, type Capture } from '../../../src/engine/runtime.js';
import { sleep } from '../../../src/lib/sleep.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { Dice } from '../../crash/support/seeded-random.js';
import { readSeed } from '../../support/budget.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startForTest, type TestService } from '../../support/service.js';
import { capture, fromSnapshot, startSmall } from '../../support/snapshots.js';

const SEED = readSeed('SANDKEEP_TEST_SNAPSHOTS_SEED');
const ROUNDS = 8;
const AT_ONCE = 10;
const NAMES = ['a', 'b', 'c'];
const SOURCES = 3;

/**
 * Random operations at once, also the end of captures. The oracle reads the audit events in their order, and knows
 * nothing of the tables of snapshots. The lists, the engine, the quotas and the bill must agree with it.
 */
test(`snapshots are what their events say: SANDKEEP_TEST_SNAPSHOTS_SEED=${SEED}`, async () => {
  const dice = new Dice(SEED);
  let hasErrors = true;
  let orgId: string | undefined;
  const onCapture = async (one: Capture) => {
    if (one.orgId !== orgId) return;
    const [wait, outcome] = [dice.between(0, 15), dice.weighted({ works: 17, changed: 2, breaks: 1 })];
    await sleep(wait);
    if (hasErrors && outcome === 'changed') throw new CaptureRefusedError('sandbox_changed', 'it changed');
    if (hasErrors && outcome === 'breaks') throw new Error('the engine does not answer');
  };
  const service = await startForTest({ simulated: { onCapture }, settings: { stopGraceMs: 0 } });
  const client = await service.newOrg();
  orgId = client.org.id;
  const actions = new Actions(service, client, dice);
  const hurry = await makeHurry(service);
  await actions.prepare();
  for (let round = 0; round < ROUNDS; round += 1) {
    await Promise.all(Array.from({ length: AT_ONCE }, async () => actions.any()));
    await compare(service, client, hurry);
    await actions.probeQuota(`probe-${round}`);
  }
  hasErrors = false;
  console.log(`snapshots: ${JSON.stringify(actions.answers)}`);
  expect(actions.answers['create 200']).toBeGreaterThan(0);
  expect(actions.answers['remove 200']).toBeGreaterThan(0);
  await compare(service, client, hurry);
});

class Actions {
  /** How often each request had each status. */
  readonly answers: Record<string, number> = {};
  private readonly snapshots: string[] = [];
  private readonly sandboxes: string[] = [];
  private count = 0;
  private limit: number | null = null;

  constructor(
    private readonly service: TestService,
    private readonly client: Client,
    private readonly dice: Dice,
  ) {}

  async prepare(): Promise<void> {
    for (let at = 0; at < SOURCES; at += 1)
      this.sandboxes.push(await startSmall(this.client, this.newName()));
  }

  async any(): Promise<void> {
    const { client, dice } = this;
    const known = this.snapshots.length > 0 ? dice.oneOf(this.snapshots) : '';
    const name = dice.oneOf(NAMES);
    switch (
      dice.weighted({
        create: 8,
        remove: 4,
        removeByName: 2,
        restore: 3,
        purge: 2,
        use: 2,
        drop: 2,
        limit: 1,
      })
    ) {
      case 'create': {
        const body = { kind: 'disk', sandbox_id: dice.oneOf(this.sandboxes), name, force: dice.chance(0.6) };
        const answer = this.note('create', await client.post('/v1/snapshots', body));
        if (answer.status === 200) this.snapshots.push(answer.body.id);
        return;
      }
      case 'remove':
        return void this.note('remove', await client.delete(`/v1/snapshots/${known || name}`));
      case 'removeByName':
        return void this.note('remove', await client.delete(`/v1/snapshots/by-name/${name}`));
      case 'restore':
        return void this.note('restore', await client.post(`/v1/snapshots/${known || name}/restore`, {}));
      case 'purge':
        return this.purge();
      case 'use': {
        const request = fromSnapshot(this.newName(), name);
        const answer = this.note('use', await client.post('/v1/sandboxes', request, { start: true }));
        if (answer.status === 200) this.sandboxes.push(answer.body.id);
        return;
      }
      case 'drop': {
        const [dropped] = this.sandboxes.splice(dice.between(0, this.sandboxes.length - 1), 1);
        this.sandboxes.push(await startSmall(client, this.newName()));
        return void this.note('drop', await client.delete(`/v1/sandboxes/${dropped}`));
      }
      case 'limit':
        this.limit = dice.oneOf([null, null, 6, 12]);
        await setQuotas(
          this.service.ctx.pool,
          client.org.id,
          { max_snapshots: this.limit },
          operator('test'),
        );
    }
  }

  /** At rest, the next snapshot is admitted exactly when the engine has fewer than the limit. */
  async probeQuota(name: string): Promise<void> {
    const { body: quotas } = await this.client.get('/v1/quotas');
    const held = (await heldBy(this.service, this.client)).length;
    expect(quotas.snapshots).toBe(held);
    const request = { kind: 'disk', sandbox_id: await startSmall(this.client, name), name };
    const { status, body } = await this.client.post('/v1/snapshots', request);
    const limit: number | null = quotas.max_snapshots;
    expect([name, status]).toEqual([name, limit === null || held < limit ? 200 : 403]);
    if (status === 200) this.snapshots.push(body.id);
  }

  /** The time to restore it is over. */
  private async purge(): Promise<void> {
    await this.service.ctx.pool.query(
      `update snapshots set purge_at = now() where id = (
         select id from snapshots where org_id = $1 and status = 'deleting' and removed_at is null
         order by created_at limit 1)`,
      [this.client.org.id],
    );
  }

  private newName(): string {
    this.count += 1;
    return `sandbox-${this.count}`;
  }

  private note<T extends { status: number; text: string }>(request: string, answer: T): T {
    const key = `${request} ${answer.status}`;
    this.answers[key] = (this.answers[key] ?? 0) + 1;
    expect([200, 400, 403, 404, 409], answer.text).toContain(answer.status);
    return answer;
  }
}

/** The snapshots of the organization that the engine has. */
async function heldBy({ runtime }: TestService, { org }: Client): Promise<string[]> {
  const held = (await runtime.snapshots!.list()).filter(({ orgId }) => orgId === org.id);
  return held.map(({ snapshotId }) => snapshotId).toSorted();
}

/** The end of a capture, here of another organization, lets the service remove from the engine what nothing needs. */
async function makeHurry(service: TestService): Promise<() => Promise<void>> {
  const other = await service.newOrg();
  const source = await startSmall(other, 'other');
  return async () => {
    await capture(other, source, 'other', { force: true });
  };
}

interface Told {
  id: string;
  name: string;
  /** A letter for each event. */
  course: string;
  /** From its completion to its first deletion, in microseconds. */
  from?: bigint;
  to?: bigint;
  wasUsed: boolean;
}

const LETTERS: Record<string, string> = {
  snapshot_requested: 'r',
  snapshot_failed: 'f',
  snapshot_created: 'c',
  snapshot_deletion_scheduled: 'd',
  snapshot_restored: 'b',
  snapshot_purged: 'p',
};
/** Requested, then failed or created, then deleted and brought back any number of times, then purged. */
const COURSE = /^r(f|c(db)*(dp?)?)$/;

/** Waits until nothing is in progress and the log has every event, and compares everything with the events. */
async function compare(service: TestService, client: Client, hurry: () => Promise<void>): Promise<void> {
  const { pool } = service.ctx;
  await until(
    async () =>
      (
        await pool.query<{ count: number }>(
          `select (select count(*) from snapshots where status in ('queued', 'in_progress'))::int
             + (select count(*) from snapshots where purge_at <= now() and removed_at is null)::int
             + (select count(*) from sandboxes where status in ('starting', 'stopping')
                or (removed_at is not null and destroyed_at is null))::int
             + (select count(*) from unsealed_events)::int as count`,
        )
      ).rows[0]!.count,
    (count) => count === 0,
  );
  const told = await tell(client);
  for (const { id, course } of told.values())
    expect([id, course]).toEqual([id, expect.stringMatching(COURSE)]);
  const ids = (last: string) =>
    [...told.values()]
      .filter(({ course }) => last.includes(course.at(-1)!))
      .map(({ id }) => id)
      .toSorted();
  const listed = async (query: object) => {
    const { body } = await client.get('/v1/snapshots', { limit: 100, ...query });
    return (body.data as { id: string; name: string; status: string }[]).toSorted((a, b) =>
      a.id < b.id ? -1 : 1,
    );
  };
  const ready = await listed({});
  expect(ready.map(({ id }) => id)).toEqual(ids('cb'));
  expect((await listed({ include: 'deleted' })).map(({ id }) => id)).toEqual(ids('cbd'));
  for (const { id, name } of ready) expect(name).toBe(told.get(id)!.name);

  const { body: sandboxes } = await client.get('/v1/sandboxes', { limit: 100 });
  const needed = new Set(
    (sandboxes.data as { disk_snapshot_id: string | null }[]).map((one) => one.disk_snapshot_id),
  );
  const kept = [...told.values()]
    .filter(({ id, course }) => 'cbd'.includes(course.at(-1)!) || (course.endsWith('p') && needed.has(id)))
    .map(({ id }) => id)
    .toSorted();
  const held = async () => {
    await hurry();
    return heldBy(service, client);
  };
  await until(held, (found) => found.join() === kept.join());
  await until(
    async () => (await client.get('/v1/quotas')).body.snapshots as number,
    (count) => count === kept.length,
  );
  await compareBill(service, told);
}

/** The history of each snapshot. Names and the quota are checked at each event. */
async function tell(client: Client): Promise<Map<string, Told>> {
  const { text } = await client.get('/v1/events/export');
  const told = new Map<string, Told>();
  const names = new Map<string, string>();
  let limit: number | null = null;
  let counted = 0;
  for (const line of text.trim().split('\n')) {
    const { event_type: type, payload, timestamp } = JSON.parse(line);
    if (type === 'quota_changed' && 'max_snapshots' in payload.after) limit = payload.after.max_snapshots;
    if (type === 'sandbox_created' && payload.disk_snapshot_id) {
      const base = told.get(payload.disk_snapshot_id)!;
      expect(base.course, 'a sandbox is made from a ready snapshot').toMatch(/[cb]$/);
      base.wasUsed = true;
    }
    const letter = LETTERS[type];
    if (letter === undefined) continue;
    const { snapshot_id: id, name } = payload;
    const one: Told = told.get(id) ?? { id, name, course: '', wasUsed: false };
    told.set(id, one);
    one.course += letter;
    if (letter === 'r') {
      if (limit !== null) expect(counted, `the request of ${id} is within the quota`).toBeLessThan(limit);
      counted += 1;
    }
    if (letter === 'f' || letter === 'p') counted -= 1;
    if (letter === 'c' || letter === 'b') {
      // The deletion of the one that it replaces may follow in the same transaction.
      if (names.get(name) !== payload.replaced_snapshot_id) expect(names.get(name)).toBeUndefined();
      names.set(name, id);
    }
    if (letter === 'd' && names.get(name) === id) names.delete(name);
    if (letter === 'c') one.from = micros(timestamp);
    if (letter === 'd') one.to ??= micros(timestamp);
  }
  return told;
}

/** A snapshot is billed from its completion to its deletion, and not while it is deleted and nothing needs it. */
async function compareBill({ ctx: { pool } }: TestService, told: Map<string, Told>): Promise<void> {
  const { rows } = await pool.query<{ volume_id: string; spans: string[][]; open: boolean }>(
    `select volume_id, bool_or(to_at > now()) as open,
       json_agg(array[(extract(epoch from from_at) * 1000000)::bigint::text,
         (extract(epoch from to_at) * 1000000)::bigint::text] order by from_at) as spans
     from accruals where to_at > from_at group by volume_id`,
  );
  const billed = new Map(rows.map((row) => [row.volume_id, row]));
  for (const { id, course, from, to, wasUsed } of told.values()) {
    const bill = billed.get(id);
    if (course === 'rf') {
      expect(bill).toBeUndefined();
      continue;
    }
    const spans = (bill?.spans ?? []).map((span) => span.map(BigInt) as [bigint, bigint]);
    for (const [index, [, end]] of spans.entries()) {
      const next = spans[index + 1];
      if (next) expect(end <= next[0], `the bill of ${id} has no time twice`).toBe(true);
    }
    if (wasUsed) continue;
    if (course.endsWith('d') || course.endsWith('p')) expect([id, bill?.open ?? false]).toEqual([id, false]);
    expect(spans[0]?.[0]).toBe(from);
    if (course === 'rc') expect(bill?.open).toBe(true);
    if (!course.includes('b') && to !== undefined) expect(spans.at(-1)![1]).toBe(to);
  }
}

function micros(instant: string): bigint {
  const [, whole, fraction = ''] = /^(.*?)(?:\.(\d+))?Z$/.exec(instant)!;
  return BigInt(Date.parse(`${whole}Z`)) * 1_000n + BigInt(fraction.padEnd(6, '0'));
}
