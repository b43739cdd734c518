import { afterAll, beforeAll, expect, test } from 'vitest';
import { addMillis } from '../../../src/lib/instant.js';
import { storageRows, usedVolumes } from '../../../src/usage/storage-queries.js';
import { startTestService, type TestService } from '../../support/service.js';

const DAY = 86_400_000;
const BEGIN = '2026-01-01T00:00:00.000000Z';
const DAYS = 730;
const VOLUMES = 20;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

test('two days of storage usage cost the same anywhere in two years of readings', async () => {
  const { org } = await service.newOrg();
  const { pool } = service.ctx;
  await pool.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     select $1, ('00000000-0000-7000-8000-' || lpad(v::text, 12, '0'))::uuid, t, t + interval '1 hour', 100.5
     from generate_series($2::timestamptz, $3::timestamptz - interval '1 hour', interval '1 hour') t
     cross join generate_series(1, $4::int) v
     order by t, v`,
    [org.id, BEGIN, addMillis(BEGIN, DAYS * DAY), VOLUMES],
  );
  // Imported history may have longer intervals.
  await pool.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     values ($1, '00000000-0000-7000-8000-000000000999', $2, $3, 1)`,
    [org.id, BEGIN, addMillis(BEGIN, DAYS * DAY)],
  );
  // The vacuum makes sure that no read does the cleanup of the insert.
  await pool.query('vacuum analyze accruals');

  const starts = [0, 1, DAYS / 2, DAYS - 3, DAYS - 2];
  for (const query of [
    (window: Parameters<typeof storageRows>[1]) => storageRows(org.id, window, 'json'),
    (window: Parameters<typeof storageRows>[1]) => usedVolumes(org.id, window),
  ]) {
    const costs: number[] = [];
    for (const day of starts) {
      const since = addMillis(BEGIN, day * DAY);
      const window = { since, until: addMillis(since, 2 * DAY), now: addMillis(BEGIN, 2 * DAYS * DAY) };
      const { text, values } = query(window);
      const { rows } = await pool.query(`explain (analyze, buffers, format json) ${text}`, [...values]);
      const { Plan: plan } = rows[0]!['QUERY PLAN'][0];
      costs.push(plan['Shared Hit Blocks'] + plan['Shared Read Blocks']);
    }
    // 960 readings are in the window and as many in the next two days, about a hundred on a page: 20 to 51 were
    // measured.
    for (const cost of costs) expect(cost).toBeLessThan(150);
  }
});
