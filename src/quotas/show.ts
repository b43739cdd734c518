import type { Sql } from '../db/pool.js';
import { startOfMonth, type Instant } from '../lib/instant.js';
import { exhaustedHours } from './limits.js';
import { countPublishedPorts, getQuotas, sumSnapshots, usedHours } from './queries.js';
import type { QuotaUsage } from './schema.js';

const GIB = 1024 ** 3;

export async function showQuotas(sql: Sql, orgId: string, at: Instant): Promise<QuotaUsage | undefined> {
  const row = await getQuotas(sql, orgId);
  if (!row) return undefined;
  const { count_rows: _, most_at_once: __, has_budgets: ___, existing, ...rest } = row;
  const { ephemeral_running, persistent_running, ...limits } = rest;
  const snapshots = await sumSnapshots(sql, orgId);
  const pool = await usedHours(sql, orgId, startOfMonth(at), at);
  return {
    ...limits,
    ...pool,
    pool_exhausted: exhaustedHours(limits, pool) !== undefined,
    total_sandboxes: existing,
    concurrent_ephemeral_running: ephemeral_running,
    concurrent_persistent_running: persistent_running,
    published_ports: await countPublishedPorts(sql, orgId),
    snapshots: snapshots.count,
    snapshot_gib_used: snapshots.bytes / GIB,
  };
}
