import type { Sql } from '../../db/pool.js';
import { microsOf, type Instant } from '../../lib/instant.js';
import type { Subject } from '../../engine/use/use.js';
import { keyed, type SandboxKey } from '../queries.js';

interface MeasuredRow extends Record<string, unknown> {
  id: string;
  org_id: string;
  org: string;
  status: string;
  run_id: string | null;
  started_at: Instant | null;
  interval_ms: string | null;
  is_off: boolean;
  resources: { vcpus: number; memory_mib: number; disk_size_mib: number | null } | null;
}

/** A sandbox as its samples need it. `subject`: null unless it runs and may be sampled. */
export interface MeasuredSandbox {
  id: string;
  isRunning: boolean;
  /** Null: sampling is off. */
  intervalMs: number | null;
  limits: { vcpus: number; memoryMib: number; diskMib: number | null } | null;
  subject: Subject | null;
}

const COLUMNS = `s.id, s.org_id, o.slug as org, s.status, s.run_id, s.started_at,
  s.spec -> 'runtime' ->> 'metrics_sample_interval_ms' as interval_ms,
  coalesce((s.spec -> 'runtime' ->> 'disable_metrics_sample')::boolean, false) as is_off,
  s.spec -> 'resources' as resources`;

export async function getMeasured(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<MeasuredSandbox | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<MeasuredRow>(
    `select ${COLUMNS} from sandboxes s join orgs o on o.id = s.org_id
     where s.org_id = $1 and ${condition} and s.removed_at is null`,
    [orgId, ...values],
  );
  return rows[0] && measured(rows[0]);
}

/** The running sandboxes of a worker that may be sampled. */
export async function listSampled(sql: Sql, workerId: string): Promise<Subject[]> {
  const { rows } = await sql.query<MeasuredRow>(
    `select ${COLUMNS} from sandboxes s join orgs o on o.id = s.org_id
     where s.worker_id = $1 and s.status = 'running' and s.removed_at is null
       and s.runtime is not null and s.destroyed_at is null`,
    [workerId],
  );
  return rows.flatMap((row) => measured(row).subject ?? []);
}

function measured(row: MeasuredRow): MeasuredSandbox {
  const { id, run_id, started_at, interval_ms, is_off, resources } = row;
  const isRunning = row.status === 'running' && run_id !== null && started_at !== null;
  const intervalMs = is_off || interval_ms === null ? null : Number(interval_ms);
  return {
    id,
    isRunning,
    intervalMs,
    limits: resources && {
      vcpus: resources.vcpus,
      memoryMib: resources.memory_mib,
      diskMib: resources.disk_size_mib,
    },
    subject:
      isRunning && intervalMs !== null
        ? {
            orgId: row.org_id,
            org: row.org,
            sandboxId: id,
            runId: run_id,
            intervalMs,
            startedAt: Number(microsOf(started_at) / 1_000n),
          }
        : null,
  };
}
