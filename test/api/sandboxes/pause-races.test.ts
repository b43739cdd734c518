import { expect, test } from 'vitest';
import { parseInstant, microsOf } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import { Dice } from '../../crash/support/seeded-random.js';
import type { Client } from '../../support/client.js';
import { readSeed } from '../../support/budget.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest } from '../../support/service.js';

const SANDBOXES = 4;
const CALLERS = 3;
const OPERATIONS = 14;
const MEMORY_MIB = 512;
const WEIGHTS = { pause: 5, resume: 3, start: 2, stop: 2, restart: 1, destroy: 0.2 };

interface Event {
  event_type: string;
  timestamp: string;
  payload: Record<string, unknown>;
}

const micros = (text: unknown) => microsOf(parseInstant(String(text))!);

/** The pauses of a sandbox in microseconds, from its audit events alone. An open one ends at `now`. */
function pausesIn(events: readonly Event[], now: bigint): { from: bigint; to: bigint }[] {
  const pauses: { from: bigint; to: bigint }[] = [];
  let open: bigint | undefined;
  const close = (to: bigint) => {
    if (open !== undefined) pauses.push({ from: open, to: to > open ? to : open });
    open = undefined;
  };
  for (const { event_type: type, timestamp, payload } of events) {
    if (type === 'sandbox_paused') open = micros(payload['stopped_at']);
    else if (type === 'sandbox_started') close(micros(payload['started_at']));
    else if (type === 'sandbox_memory_discarded' || type === 'sandbox_destroyed') close(micros(timestamp));
    else if (type === 'sandbox_stopped' && payload['stop_reason'] !== 'paused') close(micros(timestamp));
  }
  close(now);
  return pauses;
}

async function eventsOf(client: Client, id: string): Promise<Event[]> {
  const events: Event[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const query = { resource_id: id, limit: 100, ...(cursor === '' ? {} : { cursor }) };
    const { body } = await client.get('/v1/events', query);
    events.push(...body.data);
    cursor = body.next_cursor as string | null;
  }
  return events.toReversed();
}

test('several callers at once: each pause is billed once, from the end of a run to its own end', async () => {
  const seed = readSeed('SANDKEEP_TEST_PAUSE_SEED');
  console.log(`SANDKEEP_TEST_PAUSE_SEED=${seed}`);
  const dice = new Dice(seed);
  const service = await startForTest({
    simulated: {
      startMs: 5,
      stopMs: 5,
      beforePause: async () => sleep(dice.between(0, 20)),
      failPause: () => (dice.chance(0.1) ? 'a random failure' : undefined),
    },
  });
  const client = await service.newOrg();
  const ids: string[] = [];
  for (let count = 0; count < SANDBOXES; count += 1) {
    const query = { start: true, wait_for: 'running' };
    ids.push((await client.post('/v1/sandboxes', smallRequest(`s-${count}`), query)).body.id);
  }
  const call = async (own: Dice) => {
    for (let count = 0; count < OPERATIONS; count += 1) {
      const path = `/v1/sandboxes/${own.oneOf(ids)}`;
      const operation = own.weighted(WEIGHTS);
      const query = operation === 'resume' && own.chance(0.5) ? { wait_for: 'running' } : {};
      const { status } =
        operation === 'destroy'
          ? await client.delete(path)
          : await client.post(`${path}/${operation}`, {}, query);
      expect([200, 404, 409]).toContain(status);
      await sleep(own.between(0, 30));
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, () => call(new Dice(dice.seed()))));
  const { body } = await until(
    () => client.get('/v1/sandboxes', { limit: 100 }),
    (list) =>
      list.body.data.every((one: { status: string }) => !['starting', 'stopping'].includes(one.status)),
  );
  const { pool } = service.ctx;
  const now = micros('2100-01-01T00:00:00Z');
  for (const id of ids) {
    const events = await eventsOf(client, id);
    const { rows } = await pool.query<{ from_at: string; to_at: string | null; disk_mib: number }>(
      'select from_at, to_at, disk_mib + memory_mib as disk_mib from pauses where sandbox_id = $1 order by from_at',
      [id],
    );
    const stored = rows.map(({ from_at, to_at }) => ({
      from: microsOf(from_at),
      to: to_at === null ? now : microsOf(to_at),
    }));
    expect(stored).toEqual(pausesIn(events, now));
    expect(rows.every(({ disk_mib }) => disk_mib === MEMORY_MIB)).toBe(true);
    const shown = body.data.find((one: { id: string }) => one.id === id);
    const isOpen = rows.at(-1)?.to_at === null;
    expect(isOpen).toBe(shown?.paused_at != null);
    if (shown?.paused_at != null) expect(shown.status).toBe('stopped');

    // No time is billed twice, and none of a pause as a run.
    const { rows: runs } = await pool.query<{ started_at: string; stopped_at: string | null }>(
      'select started_at, stopped_at from runs where sandbox_id = $1 and started_at is not null',
      [id],
    );
    const spans = [
      ...stored,
      ...runs.map(({ started_at, stopped_at }) => ({
        from: microsOf(started_at),
        to: stopped_at === null ? now : microsOf(stopped_at),
      })),
    ].toSorted((a, b) => (a.from < b.from || (a.from === b.from && a.to < b.to) ? -1 : 1));
    for (const [index, { from }] of spans.entries())
      if (index > 0) expect(from).toBeGreaterThanOrEqual(spans[index - 1]!.to);
    const held = (await service.runtime.list()).find(({ sandboxId }) => sandboxId === id);
    await until(
      async () => (await service.runtime.list()).find(({ sandboxId }) => sandboxId === id)?.savedMib,
      (saved) => (saved !== undefined) === (shown?.paused_at != null),
    );
    expect(held?.state === 'running').toBe(shown?.status === 'running');
  }
});
