import { expect, test } from 'vitest';
import { instantFromMicros, shortInstant } from '../../../src/lib/instant.js';
import { newId } from '../../../src/lib/uuid.js';
import { Dice } from '../../crash/support/seeded-random.js';
import { readSeed } from '../../support/budget.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest } from '../../support/service.js';

const DAY = 86_400_000_000n;
/** 2026-01-01 */
const BEGIN = 1_767_225_600_000_000n;
const DAYS = 20n;

interface Pause {
  sandboxId: string;
  mib: bigint;
  from: bigint;
  to: bigint | null;
}

/** In whole microseconds and MiB, by the day and the sandbox. It knows nothing of the queries of the service. */
function billOf(pauses: readonly Pause[], since: bigint, until: bigint): Map<string, number> {
  const bill = new Map<string, bigint>();
  for (const { sandboxId, mib, from, to } of pauses)
    for (let day = BEGIN - DAY; day < BEGIN + (DAYS + 2n) * DAY; day += DAY) {
      const begin = [from, since, day].reduce((a, b) => (a > b ? a : b));
      const end = [to ?? until, until, day + DAY].reduce((a, b) => (a < b ? a : b));
      if (begin >= end) continue;
      const key = `${shortInstant(instantFromMicros(day))} ${sandboxId}`;
      bill.set(key, (bill.get(key) ?? 0n) + (end - begin) * mib);
    }
  return new Map([...bill].map(([key, micros]) => [key, Number(micros) / 1_000_000]));
}

test('a pause is billed as storage, to the microsecond, in every window', async () => {
  const seed = readSeed('SANDKEEP_TEST_PAUSE_SEED');
  console.log(`SANDKEEP_TEST_PAUSE_SEED=${seed}`);
  const dice = new Dice(seed);
  const random = (below: number) => dice.between(0, below - 1);
  const between = (low: bigint, high: bigint) =>
    low + (BigInt(random(1_000_000_000)) * (high - low)) / 1_000_000_000n;
  const service = await startForTest({ worker: false });
  const client = await service.newOrg();
  const other = await service.newOrg();
  const { pool } = service.ctx;
  const pauses: Pause[] = [];
  for (let count = 0; count < 4; count += 1) {
    const { body } = await client.post('/v1/sandboxes', smallRequest(`s-${count}`));
    let at = between(BEGIN, BEGIN + 3n * DAY);
    for (let pause = 0; pause < 6; pause += 1) {
      const runId = newId();
      const isOpen = pause === 5 && count % 2 === 0;
      // The first has no length, and the second ends at midnight.
      const to = pause === 0 ? at : pause === 1 ? (at / DAY + 1n) * DAY : at + between(1n, 3n * DAY);
      const [disk, memory] = [random(4096), random(2048)];
      await pool.query(
        `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
         values ($1, $2, $3, 1, 512, $4, $5, $5, 'paused')`,
        [client.org.id, runId, body.id, disk, instantFromMicros(at)],
      );
      await pool.query(
        `insert into pauses (org_id, run_id, sandbox_id, disk_mib, memory_mib, from_at, to_at)
         values ($1, $2, $3, $4, $5, $6, $7)`,
        [
          client.org.id,
          runId,
          body.id,
          disk,
          memory,
          instantFromMicros(at),
          isOpen ? null : instantFromMicros(to),
        ],
      );
      pauses.push({ sandboxId: body.id, mib: BigInt(disk + memory), from: at, to: isOpen ? null : to });
      at = to + between(0n, DAY);
    }
  }
  for (let round = 0; round < 30; round += 1) {
    const since = between(BEGIN - DAY, BEGIN + (DAYS - 1n) * DAY);
    const until = since + between(1n, BEGIN + DAYS * DAY - since);
    const window = { since: instantFromMicros(since), until: instantFromMicros(until) };
    const { body } = await client.get('/v1/billing/usage/storage', window);
    const rows = body.rows as { day: string; volume_id: string; mib_seconds: number }[];
    const shown = rows.map((row) => [`${row.day} ${row.volume_id}`, row.mib_seconds] as const);
    const expected = [...billOf(pauses, since, until)].filter(([, seconds]) => seconds > 0);
    expect(new Map(shown.filter(([, seconds]) => seconds > 0))).toEqual(new Map(expected));
    const named = new Set(body.volumes.map((one: { id: string }) => one.id));
    for (const { volume_id } of rows) expect(named.has(volume_id)).toBe(true);
    expect((await other.get('/v1/billing/usage/storage', window)).body.rows).toEqual([]);
  }
  const { body: compute } = await client.get('/v1/billing/usage/sandbox', {
    since: '2026-01-01',
    until: '2026-02-01',
  });
  expect(compute.rows).toEqual([]);
});
