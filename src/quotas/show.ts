import type { Sql } from '../db/pool.js';
import { startOfMonth, type Instant } from '../lib/instant.js';
import { exhaustedPool } from './limits.js';
import { countRunning, countSandboxes, getLimits, poolUsage } from './queries.js';
import type { QuotaUsage } from './schema.js';

/** The quotas of an organization and what of them is in use; undefined when there is no such organization. */
export async function showQuotas(sql: Sql, orgId: string, at: Instant): Promise<QuotaUsage | undefined> {
  const limits = await getLimits(sql, orgId);
  if (!limits) return undefined;
  const pool = await poolUsage(sql, orgId, startOfMonth(at), at);
  return {
    ...limits,
    ...pool,
    pool_exhausted: exhaustedPool(limits, pool) !== undefined,
    total_sandboxes: await countSandboxes(sql, orgId),
    concurrent_ephemeral_running: await countRunning(sql, orgId, true),
    concurrent_persistent_running: await countRunning(sql, orgId, false),
  };
}
