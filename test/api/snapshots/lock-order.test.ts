import { expect, test } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import { sleep } from '../../../src/lib/sleep.js';
import { lockQuotas } from '../../../src/quotas/queries.js';
import { completeSnapshot } from '../../../src/snapshots/complete.js';
import { lockSnapshot } from '../../../src/snapshots/work-queries.js';
import { until } from '../../support/polling.js';
import { startForTest } from '../../support/service.js';
import { capture, fromSnapshot, startSmall } from '../../support/snapshots.js';

/** PostgreSQL looks for a deadlock when a lock was not granted for a second. */
const BEYOND_DEADLOCK_MS = 1_500;

test('the end of a replacement and a create from the replaced snapshot do not wait for each other in a circle', async () => {
  const service = await startForTest();
  const { ctx } = service;
  const { pool } = ctx;
  const client = await service.newOrg();
  const orgId = client.org.id;
  const source = await startSmall(client, 'source');
  const base = await capture(client, source, 'base');
  await service.stopWorker();
  const request = { kind: 'disk', sandbox_id: source, name: 'base', force: true };
  const { body: operation } = await client.post('/v1/snapshots', request);
  await pool.query(`update snapshots set status = 'in_progress' where id = $1`, [operation.id]);
  const locked = await lockSnapshot(pool, { org_id: orgId, id: operation.id });
  const begun = { ...locked!, sandbox_id: source, sandbox_name: 'source' };
  // A create near a limit waits for the quotas.
  await pool.query('update quotas set max_sandboxes = 2 where org_id = $1', [orgId]);
  const waiting = async (count: number) =>
    until(
      async () =>
        (
          await pool.query<{ count: number }>(
            `select count(*)::int as count from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'`,
          )
        ).rows[0]!.count,
      (found) => found === count,
    );

  const { completing, creating } = await inTransaction(pool, async (tx) => {
    await lockQuotas(tx, orgId, 'exclusive');
    // Without a repetition, so that a deadlock fails.
    const completing = inTransaction(
      pool,
      async (own) => completeSnapshot(ctx, own, begun, { bytes: 1, contentDigest: 'sha256:00' }, new Map()),
      { unhurried: true },
    );
    await waiting(1);
    const creating = client.post('/v1/sandboxes', fromSnapshot('made', base['id']));
    await waiting(2);
    await sleep(BEYOND_DEADLOCK_MS);
    return { completing: completing.catch((error: Error) => error), creating };
  });
  expect(await completing).toBeUndefined();
  // The create had to wait for the replacement, which deletes the snapshot.
  expect((await creating).body.error.code).toBe('snapshot_not_found');
  expect((await client.get('/v1/snapshots/by-name/base')).body.id).toBe(operation.id);
});
