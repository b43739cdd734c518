import { readBackupAge } from '../db/instance-queries.js';
import type { Pool, Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { admittedMillis } from '../runs/run-id.js';
import { countWaiting } from '../sandboxes/placement/wait-queries.js';
import { readVerifications } from '../audit/verify/verification-queries.js';
import { listWorkers } from '../workers/queries.js';
import { gauge, total, type Sample } from './samples.js';
import {
  countPoolSandboxes,
  countSandboxes,
  firstWaitingRun,
  readDatabaseState,
  readLeases,
  readLogState,
  readMeteringLag,
  readBudgetUse,
  readQuotaUse,
  readWebhookState,
} from './state-queries.js';

const STATUSES = ['created', 'starting', 'running', 'stopping', 'stopped', 'failed'];
const QUOTAS = ['max_sandboxes', 'max_concurrent_ephemeral_running', 'max_concurrent_persistent_running'];
const NEAR_LIMIT = 0.9;
const STATEMENT_TIMEOUT_MS = 5_000;
const MIB = 1024 ** 2;

export interface StateOptions {
  /** Adds series of single organizations, labelled with their slugs. */
  byOrg: boolean;
}

/** The state that the database knows. Every process of an installation measures the same. */
export async function measureState(pool: Pool, { byOrg }: StateOptions): Promise<Sample[]> {
  return inTransaction(pool, async (tx) => {
    await tx.query(`set transaction read only; set local statement_timeout = ${STATEMENT_TIMEOUT_MS}`);
    return [
      ...(await sandboxes(tx, byOrg)),
      ...(await pools(tx)),
      ...(await quotas(tx, byOrg)),
      ...(await budgets(tx, byOrg)),
      ...(await placement(tx)),
      ...(await workers(tx)),
      ...(await eventLog(tx)),
      ...(await webhooks(tx)),
      ...(await metering(tx)),
      ...(await backups(tx)),
      ...(await database(tx)),
    ];
  });
}

async function sandboxes(sql: Sql, byOrg: boolean): Promise<Sample[]> {
  const counted = await countSandboxes(sql, byOrg);
  const help = 'Sandboxes that are not deleted, by status.';
  const sample = (status: string, count: number, org: string | null) =>
    gauge('sandkeep_sandboxes', help, count, org === null ? { status } : { status, org });
  if (byOrg) return counted.map(({ status, count, org }) => sample(status, count, org));
  const counts = new Map(counted.map(({ status, count }) => [status, count]));
  return STATUSES.map((status) => sample(status, counts.get(status) ?? 0, null));
}

async function pools(sql: Sql): Promise<Sample[]> {
  const { ready, starting, missing } = await countPoolSandboxes(sql);
  const help =
    'Sandboxes of pools that no create has taken, by state: ready, starting, or missing to the sizes.';
  return Object.entries({ ready, starting, missing }).map(([state, count]) =>
    gauge('sandkeep_pool_sandboxes', help, count, { state }),
  );
}

async function quotas(sql: Sql, byOrg: boolean): Promise<Sample[]> {
  const uses = await readQuotaUse(sql);
  const near = (quota: string) =>
    uses.filter((use) => use.quota === quota && use.used >= use.most * NEAR_LIMIT).length;
  const help = 'Organizations that use nine tenths of a quota, or more.';
  return [
    ...QUOTAS.map((quota) => gauge('sandkeep_quota_organizations_near_limit', help, near(quota), { quota })),
    ...(byOrg ? uses : []).flatMap(({ org, quota, most, used }) => [
      gauge('sandkeep_quota_limit', 'Limited quotas of numbers of sandboxes.', most, { org, quota }),
      gauge('sandkeep_quota_used', 'Use of these quotas.', used, { org, quota }),
    ]),
  ];
}

async function budgets(sql: Sql, byOrg: boolean): Promise<Sample[]> {
  const checked = await readBudgetUse(sql);
  const help = 'Budgets that had used up their limit at their last check.';
  return [
    gauge('sandkeep_budgets_used_up', help, checked.filter(({ ratio }) => ratio >= 1).length),
    ...(byOrg ? checked : []).map(({ org, budget, ratio }) =>
      gauge('sandkeep_budget_used_ratio', 'The use of this month divided by the limit.', ratio, {
        org,
        budget,
      }),
    ),
  ];
}

async function placement(sql: Sql): Promise<Sample[]> {
  const waiting = await countWaiting(sql);
  const sum = (column: 'runs' | 'vcpus') => waiting.reduce((amount, each) => amount + each[column], 0);
  const first = await firstWaitingRun(sql);
  const age = first === null ? 0 : Math.max(0, (Date.now() - admittedMillis(first)) / 1_000);
  return [
    gauge('sandkeep_placement_waiting_runs', 'Starts that wait for a worker with room.', sum('runs')),
    gauge('sandkeep_placement_waiting_vcpus', 'vCPUs that they ask for.', sum('vcpus')),
    gauge('sandkeep_placement_oldest_wait_seconds', 'Age of the oldest of them.', age),
  ];
}

async function workers(sql: Sql): Promise<Sample[]> {
  const leases = new Map((await readLeases(sql)).map((lease) => [lease.id, lease.remaining_secs]));
  return (await listWorkers(sql, null)).flatMap((row) => {
    const labels = { worker: row.name, worker_id: row.id, runtime: row.runtime };
    const size = (resource: string, capacity: number | null, used: number) => [
      ...(capacity === null
        ? []
        : [gauge('sandkeep_worker_capacity', 'Capacity of a worker.', capacity, { ...labels, resource })]),
      gauge('sandkeep_worker_used', 'Capacity that runs and disks use.', used, { ...labels, resource }),
    ];
    const help = 'Time until the lease of a worker expires. Below zero, no process acts on its engine.';
    return [
      gauge('sandkeep_worker_lease_remaining_seconds', help, leases.get(row.id) ?? 0, labels),
      ...size('vcpus', row.vcpus, row.used_vcpus),
      ...size('memory_bytes', row.memory_mib * MIB, row.used_memory_mib * MIB),
      ...size('disk_bytes', row.disk_mib === null ? null : row.disk_mib * MIB, row.used_disk_mib * MIB),
    ];
  });
}

async function eventLog(sql: Sql): Promise<Sample[]> {
  const { entries, unsealed, oldest_secs } = await readLogState(sql);
  const verified = await readVerifications(sql);
  const age =
    'Age of the oldest of the last verifications by "sandkeep events verify"; absent before the first.';
  const name = (end: string) => `sandkeep_event_log_${end}`;
  return [
    total('sandkeep_event_log_entries_total', 'Entries of all event logs.', entries),
    gauge('sandkeep_event_log_unsealed', 'Audit events that are not in the log yet.', unsealed),
    gauge('sandkeep_event_log_unsealed_oldest_seconds', 'Age of the oldest of them.', oldest_secs),
    ...(verified.oldest_secs === null
      ? []
      : [gauge(name('verification_age_seconds'), age, verified.oldest_secs)]),
    gauge(name('never_verified'), 'Organizations whose log was never verified.', verified.never),
    gauge(name('faulty'), 'Organizations whose last verification found a fault.', verified.faults),
  ];
}

async function webhooks(sql: Sql): Promise<Sample[]> {
  const state = await readWebhookState(sql);
  const help = 'Webhooks, by state. Disabled: by the service, because their deliveries failed.';
  const count = (name: string, value: number) => gauge('sandkeep_webhooks', help, value, { state: name });
  const behind = 'Events that active webhooks have not looked at.';
  return [
    count('active', state.active - state.failing),
    count('failing', state.failing),
    count('disabled', state.disabled_by_service),
    gauge('sandkeep_webhook_unread_events', behind, state.unread),
    gauge('sandkeep_webhook_pending_deliveries', 'Deliveries of active webhooks.', state.pending),
    gauge('sandkeep_webhook_oldest_delivery_seconds', 'Age of the oldest of them.', state.oldest_secs),
  ];
}

async function metering(sql: Sql): Promise<Sample[]> {
  const lag = await readMeteringLag(sql);
  const seen =
    'Longest time since a worker has seen one of its runs. A run without its worker is billed to there.';
  return [
    gauge('sandkeep_metering_volume_lag_seconds', 'Age of the oldest reading of a volume.', lag.volumes),
    gauge('sandkeep_metering_run_lag_seconds', seen, lag.runs),
  ];
}

async function backups(sql: Sql): Promise<Sample[]> {
  const { secs } = await readBackupAge(sql);
  const help = 'Age of the latest scheduled backup; without one, of the installation.';
  return [gauge('sandkeep_backup_age_seconds', help, Math.max(0, secs))];
}

async function database(sql: Sql): Promise<Sample[]> {
  const state = await readDatabaseState(sql);
  const name = (end: string) => `sandkeep_database_${end}`;
  return [
    gauge(name('size_bytes'), 'Size of the database.', state.bytes),
    gauge(name('connections'), 'Connections of the database.', state.connections),
    gauge(name('max_connections'), 'Most connections of the server.', state.max_connections),
    gauge(name('longest_transaction_seconds'), 'Age of the oldest transaction.', state.longest_secs),
    total(name('commits_total'), 'Committed transactions.', state.committed),
    total(name('rollbacks_total'), 'Rolled back transactions.', state.rolled_back),
    total(name('deadlocks_total'), 'Deadlocks.', state.deadlocks),
    total(name('blocks_hit_total'), 'Blocks that were in the cache of the server.', state.blocks_hit),
    total(name('blocks_read_total'), 'Blocks that were not.', state.blocks_read),
    total(name('temp_bytes_total'), 'Bytes of temporary files.', state.temp_bytes),
  ];
}
