import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { write, type WriteTarget } from '../../db/write-batch.js';
import type { Instant } from '../../lib/instant.js';
import type { LatePart } from '../../engine/runtime.js';
import type { PausedRun } from '../../runs/pauses.js';
import type { LockedSandbox } from '../queries.js';

export type ObservedSandbox = Pick<
  LockedSandbox,
  | 'org_id'
  | 'id'
  | 'name'
  | 'status'
  | 'status_reason'
  | 'image_digest'
  | 'last_failure_message'
  | 'stop_reason'
  | 'stop_message'
  | 'paused_at'
  | 'command'
  | 'run_id'
  | 'next_run'
  | 'removed_at'
  | 'started_at'
  | 'stopped_at'
> & { changed_at: Instant };

/** Locks in a fixed order, against deadlocks. Removed sandboxes too. */
export async function lockObserved(
  tx: Sql,
  observed: readonly { orgId: string; sandboxId: string }[],
): Promise<ObservedSandbox[]> {
  const { rows } = await tx.query<ObservedSandbox & Record<string, unknown>>(
    prepared(
      `select s.org_id, s.id, s.name, s.status, s.status_reason, s.last_failure_message, s.image_digest, s.stop_reason,
         s.stop_message, s.paused_at, s.command, s.run_id, s.next_run, s.removed_at, s.started_at,
         s.stopped_at, s.changed_at
       from sandboxes s
       join unnest($1::uuid[], $2::uuid[]) as o (org_id, id) on s.org_id = o.org_id and s.id = o.id
       order by s.org_id, s.id
       for update of s`,
      [observed.map(({ orgId }) => orgId), observed.map(({ sandboxId }) => sandboxId)],
    ),
  );
  return rows;
}

export async function writeObserved(
  target: WriteTarget,
  sandboxes: readonly ObservedSandbox[],
): Promise<void> {
  await write(
    target,
    (p) => `update sandboxes s
     set status = o.status, status_reason = o.status_reason, last_failure_message = o.last_failure_message,
       image_digest = o.image_digest,
       stop_reason = o.stop_reason, stop_message = o.stop_message, paused_at = o.paused_at, command = o.command,
       started_at = o.started_at, stopped_at = o.stopped_at, changed_at = o.changed_at, run_id = o.run_id,
       next_run = case when s.run_id = o.run_id then s.next_run end
     from unnest(
       ${p(sandboxes.map(({ org_id }) => org_id))}::uuid[],
       ${p(sandboxes.map(({ id }) => id))}::uuid[],
       ${p(sandboxes.map(({ status }) => status))}::text[],
       ${p(sandboxes.map(({ status_reason }) => status_reason))}::text[],
       ${p(sandboxes.map(({ last_failure_message }) => last_failure_message))}::text[],
       ${p(sandboxes.map(({ image_digest }) => image_digest))}::text[],
       ${p(sandboxes.map(({ stop_reason }) => stop_reason))}::text[],
       ${p(sandboxes.map(({ stop_message }) => stop_message))}::text[],
       ${p(sandboxes.map(({ paused_at }) => paused_at))}::timestamptz[],
       ${p(sandboxes.map(({ command }) => command && JSON.stringify(command)))}::json[],
       ${p(sandboxes.map(({ started_at }) => started_at))}::timestamptz[],
       ${p(sandboxes.map(({ stopped_at }) => stopped_at))}::timestamptz[],
       ${p(sandboxes.map(({ changed_at }) => changed_at))}::timestamptz[],
       ${p(sandboxes.map(({ run_id }) => run_id))}::uuid[]
     ) as o (org_id, id, status, status_reason, last_failure_message, image_digest, stop_reason, stop_message, paused_at, command, started_at, stopped_at, changed_at, run_id)
     where s.org_id = o.org_id and s.id = o.id`,
  );
}

/** The memory of a pause counts as a part of the disk. The trigger `end_pause` takes it off again. */
export async function countSavedMemory(target: WriteTarget, paused: readonly PausedRun[]): Promise<void> {
  if (paused.length === 0) return;
  await write(
    target,
    (p) => `update sandboxes s set disk_mib = s.disk_mib + t.saved_mib
     from unnest(
       ${p(paused.map(({ orgId }) => orgId))}::uuid[],
       ${p(paused.map(({ runId }) => runId))}::uuid[],
       ${p(paused.map(({ savedMib }) => savedMib))}::int[]
     ) as t (org_id, run_id, saved_mib)
     where s.org_id = t.org_id and s.run_id = t.run_id and s.paused_at is not null`,
  );
}

/** Notes the parts that this member of a pool takes. A sandbox that a create took keeps those of its create. */
export async function noteTakes(
  tx: Sql,
  orgId: string,
  id: string,
  takes: readonly LatePart[],
): Promise<void> {
  await tx.query('update sandboxes set takes = $3 where org_id = $1 and id = $2 and warm', [
    orgId,
    id,
    takes,
  ]);
}

export interface RoomNotice {
  orgId: string;
  sandboxId: string;
  runId: string;
  /** The words of the engine. Null: it has room now. */
  noRoom: string | null;
}

/** Shows why these starts wait for room in the engine. */
export async function writeRoomNotices(sql: Sql, notices: readonly RoomNotice[], at: Instant): Promise<void> {
  await sql.query(
    prepared(
      `update sandboxes s
       set status_reason = case when n.words is null then null else 'insufficient_capacity' end,
         last_failure_message = n.words, changed_at = $5
       from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) as n (org_id, id, run_id, words)
       where s.org_id = n.org_id and s.id = n.id and s.run_id = n.run_id and s.status = 'starting'`,
      [
        notices.map(({ orgId }) => orgId),
        notices.map(({ sandboxId }) => sandboxId),
        notices.map(({ runId }) => runId),
        notices.map(({ noRoom }) => noRoom),
        at,
      ],
    ),
  );
}

/** Shows for which of these sandboxes the engine does not answer. `words` null: it answers again. */
export async function writeUnanswered(
  sql: Sql,
  notices: readonly { orgId: string; sandboxId: string; words: string | null }[],
  at: Instant,
): Promise<void> {
  await sql.query(
    prepared(
      `update sandboxes s set last_failure_message = n.words, changed_at = $4
       from unnest($1::uuid[], $2::uuid[], $3::text[]) as n (org_id, id, words)
       where s.org_id = n.org_id and s.id = n.id and s.status in ('starting', 'stopping')`,
      [
        notices.map(({ orgId }) => orgId),
        notices.map(({ sandboxId }) => sandboxId),
        notices.map(({ words }) => words),
        at,
      ],
    ),
  );
}

/** The worker holds nothing of these removed sandboxes. */
export async function markDestroyed(
  sql: Sql,
  sandboxes: readonly { orgId: string; sandboxId: string }[],
  at: Instant,
): Promise<void> {
  await sql.query(
    prepared(
      `update sandboxes s set destroyed_at = $3, changed_at = $3
       from unnest($1::uuid[], $2::uuid[]) as d (org_id, id)
       where s.org_id = d.org_id and s.id = d.id`,
      [sandboxes.map(({ orgId }) => orgId), sandboxes.map(({ sandboxId }) => sandboxId), at],
    ),
  );
}
