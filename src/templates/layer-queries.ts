import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

interface Layer {
  org_id: string;
  worker_id: string;
  digest: string;
  snapshot_id: string;
  template_id: string;
}

/** Remembers the result of a step. A later build with the same digest replaces it. */
export async function keepLayer(sql: Sql, layer: Layer, at: Instant): Promise<void> {
  await sql.query(
    `insert into template_layers (org_id, worker_id, digest, snapshot_id, template_id, used_at)
     values ($1, $2, $3, $4, $5, $6)
     on conflict (org_id, worker_id, digest)
     do update set snapshot_id = excluded.snapshot_id, template_id = excluded.template_id, used_at = excluded.used_at`,
    [layer.org_id, layer.worker_id, layer.digest, layer.snapshot_id, layer.template_id, at],
  );
}

/** Those of the digests whose snapshots can be used. They count as used now, by the build. */
export async function useLayers(
  sql: Sql,
  { org_id, worker_id, template_id }: Pick<Layer, 'org_id' | 'worker_id' | 'template_id'>,
  digests: readonly string[],
  at: Instant,
): Promise<Map<string, string>> {
  const { rows } = await sql.query<{ digest: string; snapshot_id: string }>(
    `update template_layers l set used_at = $4, template_id = $5
     from snapshots p
     where l.org_id = $1 and l.worker_id = $2 and l.digest = any ($3::text[])
       and p.org_id = l.org_id and p.id = l.snapshot_id and p.status = 'ready' and p.removed_at is null
     returning l.digest, l.snapshot_id`,
    [org_id, worker_id, digests, at, template_id],
  );
  return new Map(rows.map(({ digest, snapshot_id }) => [digest, snapshot_id]));
}

/** Deletes the results that a template was the last to use, or one that it replaced: no caller finds that any more. */
export async function deleteLayersOf(
  sql: Sql,
  { orgId, templateId }: { orgId: string; templateId: string },
): Promise<void> {
  await sql.query(
    `delete from template_layers l using templates t, templates deleted
     where l.org_id = $1 and t.org_id = l.org_id and t.id = l.template_id and deleted.org_id = l.org_id and deleted.id = $2
       and (t.id = deleted.id or (t.name = deleted.name and t.tag = deleted.tag and t.removed_at is not null))`,
    [orgId, templateId],
  );
}

export async function deleteLayersOn(sql: Sql, workerId: string): Promise<void> {
  await sql.query('delete from template_layers where worker_id = $1', [workerId]);
}

export async function deleteOldLayers(sql: Sql, usedBefore: Instant): Promise<void> {
  await sql.query('delete from template_layers where used_at < $1', [usedBefore]);
}

/** The snapshots of builds on an engine that no template, no build and no later build needs. */
export async function unneededSnapshots(
  sql: Sql,
  workerId: string,
  limit: number,
): Promise<{ org_id: string; id: string }[]> {
  const { rows } = await sql.query<{ org_id: string; id: string }>(
    `select p.org_id, p.id from snapshots p
     where p.worker_id = $1 and p.template_id is not null and p.removed_at is null
       and p.status in ('queued', 'in_progress', 'ready')
       and not exists (
         select from templates t where t.org_id = p.org_id and t.id = p.template_id and t.status = 'building')
       and not exists (
         select from templates t where t.org_id = p.org_id and t.snapshot_id = p.id and t.status = 'succeeded'
           and t.removed_at is null)
       and not exists (
         select from template_layers l where l.org_id = p.org_id and l.snapshot_id = p.id)
     order by p.created_at limit $2`,
    [workerId, limit],
  );
  return rows;
}
