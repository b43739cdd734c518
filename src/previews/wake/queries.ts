import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import type { Instant } from '../../lib/instant.js';
import type { SandboxStatus, StopReason } from '../../spec/statuses.js';

export interface WakeState {
  status: SandboxStatus;
  stop_reason: StopReason | null;
  /** An admitted run follows the current one. */
  will_start: boolean;
}

export async function getWakeState(
  sql: Sql,
  orgId: string,
  sandboxId: string,
): Promise<WakeState | undefined> {
  const { rows } = await sql.query<WakeState & Record<string, unknown>>(
    prepared(
      `select status, stop_reason, status = 'stopping' and next_run is not null as will_start
       from sandboxes where org_id = $1 and id = $2::uuid and removed_at is null`,
      [orgId, sandboxId],
    ),
  );
  return rows[0];
}

/** The start of the run of a running sandbox. */
export async function getStartedAt(sql: Sql, orgId: string, sandboxId: string): Promise<Instant | undefined> {
  const { rows } = await sql.query<{ started_at: Instant | null }>(
    prepared(
      `select started_at from sandboxes
       where org_id = $1 and id = $2::uuid and removed_at is null and status = 'running'`,
      [orgId, sandboxId],
    ),
  );
  return rows[0]?.started_at ?? undefined;
}
