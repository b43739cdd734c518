import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import type { Sql } from '../../../src/db/pool.js';
import { inTransaction } from '../../../src/db/transaction.js';
import type { Instant } from '../../../src/lib/instant.js';
import { newId } from '../../../src/lib/uuid.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { enforceBudgets } from '../../../src/sandboxes/lifecycle/stop-over-budget.js';
import { enforceHours } from '../../../src/sandboxes/lifecycle/stop-over-quota.js';
import { insertRun, makeBudget } from '../../support/budgets.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

/** A stop that comes after its cause has changed: it waits for the lock of its sandbox meanwhile. */

const LAST_HOUR = '2028-02-29T23:00:00.000000Z';
const MIDNIGHT = '2028-03-01T00:00:00.000000Z';

let service: TestService;
let clock: Instant = LAST_HOUR;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => clock });
});
afterAll(() => service.close());
beforeEach(() => {
  clock = LAST_HOUR;
});

interface Started {
  client: Client;
  id: string;
  runId: string;
}

/** A sandbox that starts, of an organization with ten hours in this month. */
async function started(key?: { id: string; key: string }, of?: Client): Promise<Started> {
  const client = of ?? (await service.newOrg());
  const query = { start: true };
  const body = smallRequest('one');
  const { body: made, text } = await client.request('POST', '/v1/sandboxes', {
    body,
    query,
    key: key?.key ?? client.key,
  });
  expect(made.status, text).toBe('starting');
  const { rows } = await service.ctx.pool.query<{ run_id: string }>(
    'select run_id from sandboxes where id = $1',
    [made.id],
  );
  const hours = { from: '2028-02-01T00:00:00Z', to: '2028-02-01T10:00:00Z', key: key?.id ?? null };
  await insertRun(service.ctx.pool, client, { sandbox: made.id, ...hours });
  return { client, id: made.id, runId: rows[0]!.run_id };
}

/** Runs `enforce`, which lists the sandbox, and makes `change` before it gets the lock. */
async function changedMeanwhile(
  id: string,
  enforce: () => Promise<void>,
  change: (tx: Sql) => Promise<unknown>,
): Promise<void> {
  const { pool } = service.ctx;
  let enforced: Promise<void> | undefined;
  await inTransaction(pool, async (tx) => {
    await tx.query('select from sandboxes where id = $1 for update', [id]);
    enforced = enforce();
    await until(
      async () =>
        (
          await pool.query(
            `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
               and query like '%from sandboxes%'`,
          )
        ).rowCount,
      (waiting) => waiting === 1,
    );
    await change(tx);
  });
  await enforced;
}

const statusOf = async ({ client, id }: Started) => (await client.get(`/v1/sandboxes/${id}`)).body.status;
const neverStops = new AbortController().signal;
const budgets = () => enforceBudgets(service.ctx, neverStops);
const hours = () => enforceHours(service.ctx, neverStops);
const nothing = async () => undefined;
const newMonth = async () => {
  clock = MIDNIGHT;
};

test('the budget of a key does not stop the run that another key has begun meanwhile', async () => {
  const client = await service.newOrg();
  const { body: key } = await client.post('/v1/keys', { name: 'other', scopes: ['org:admin'] });
  const scope = { type: 'api_key', api_key_id: key.id };
  const sandbox = await started(key, client);
  await makeBudget(client, { scope, limit: '1', action: 'stop' });
  await changedMeanwhile(sandbox.id, budgets, async (tx) => {
    await tx.query("update runs set end_reason = 'test' where id = $1", [sandbox.runId]);
    const next = newId();
    await tx.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_by_key)
       select org_id, $2, sandbox_id, vcpus, memory_mib, disk_mib, null from runs where id = $1`,
      [sandbox.runId, next],
    );
    await tx.query('update sandboxes set run_id = $2 where id = $1', [sandbox.id, next]);
  });
  expect(await statusOf(sandbox)).toBe('starting');
});

test.each([
  ['in the month of the check', nothing, 'stopping'],
  ['not after its end', newMonth, 'starting'],
])('a used up budget stops a sandbox %s', async (_, change, status) => {
  const sandbox = await started();
  await makeBudget(sandbox.client, { limit: '1', action: 'stop' });
  await changedMeanwhile(sandbox.id, budgets, change);
  expect(await statusOf(sandbox)).toBe(status);
});

test.each([
  ['in the month of the check', nothing, 'stopping'],
  ['not after its end', newMonth, 'starting'],
])('used up hours stop a sandbox %s', async (_, change, status) => {
  const sandbox = await started();
  const limits = { hard_cap: true, included_vcpu_hours: 1 };
  await setQuotas(service.ctx.pool, sandbox.client.org.id, limits, operator('test'));
  await changedMeanwhile(sandbox.id, hours, change);
  expect(await statusOf(sandbox)).toBe(status);
});
