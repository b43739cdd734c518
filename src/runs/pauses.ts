import type { Sql } from '../db/pool.js';
import { write, type WriteTarget } from '../db/write-batch.js';

export interface PausedRun {
  orgId: string;
  runId: string;
  savedMib: number;
}

/** Begins the pauses of runs that have ended. The trigger `end_pause` of `sandboxes` ends them. */
export async function insertPauses(target: WriteTarget, paused: readonly PausedRun[]): Promise<void> {
  if (paused.length === 0) return;
  await write(
    target,
    (p) => `insert into pauses (org_id, run_id, sandbox_id, disk_mib, memory_mib, from_at)
     select r.org_id, r.id, r.sandbox_id, r.disk_mib, t.saved_mib, r.stopped_at
     from unnest(
       ${p(paused.map(({ orgId }) => orgId))}::uuid[],
       ${p(paused.map(({ runId }) => runId))}::uuid[],
       ${p(paused.map(({ savedMib }) => savedMib))}::int[]
     ) as t (org_id, id, saved_mib)
     join runs r on r.org_id = t.org_id and r.id = t.id
     where r.stopped_at is not null`,
  );
}

/** Why the run ended whose memory is on the disk. Undefined: the sandbox is not paused. */
export async function openPauseReason(
  sql: Sql,
  orgId: string,
  sandboxId: string,
): Promise<string | undefined> {
  const { rows } = await sql.query<{ end_reason: string }>(
    `select r.end_reason from pauses p join runs r on r.org_id = p.org_id and r.id = p.run_id
     where p.org_id = $1 and p.sandbox_id = $2 and p.to_at is null`,
    [orgId, sandboxId],
  );
  return rows[0]?.end_reason;
}
