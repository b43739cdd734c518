import type { Sql } from '../db/pool.js';
import type { EventSql } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { UNUSED_HOST } from './check-queries.js';
import type { Kind } from './schema.js';
import { TABLES } from './staging-queries.js';

/**
 * In the order of references. The first of several lines with one id wins. Imported sandboxes have no runtime, so they
 * never run.
 */
const LOADS: Record<Kind, string> = {
  org: `insert into orgs (id, name, slug, created_at, updated_at)
    select id, name, slug, $1, $1 from staged_org order by line`,
  sandbox: `insert into sandboxes (org_id, id, name, slug, status, status_reason, ephemeral, created_at,
      last_failure_message, spec, spec_format, started_at, stopped_at, changed_at, removed_at, destroyed_at)
    select org_id, id, name, slug, status, status_reason, ephemeral, created_at,
      last_failure_message, spec, spec_format, started_at, stopped_at, $1, removed_at, removed_at
    from staged_sandbox order by line`,
  volume: `insert into volumes (org_id, id, kind, name, status, created_at, updated_at, removed_at)
    select org_id, id, kind, name, 'active', created_at, coalesce(removed_at, least(created_at, $1)), removed_at
    from staged_volume order by line`,
  accrual: `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
    select org_id, volume_id, from_at, to_at, used_mib from staged_accrual
    where $1::timestamptz is not null order by line`,
  event: `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id,
      resource_id, mark)
    select distinct on (org_id, id)
      org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id, mark
    from staged_event where $1::timestamptz is not null order by org_id, id, line`,
  // Last: it locks the rows of usage until the commit.
  run: `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
    select org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at,
      case when stopped_at is not null and $1::timestamptz is not null then 'imported' end
    from staged_run order by line`,
};

export const LOAD_ORDER = Object.keys(LOADS) as Kind[];

/** Loads the staged rows of one kind; `count`: of new rows. */
export async function loadKind(
  tx: EventSql,
  kind: Kind,
  at: Instant,
): Promise<{ org_id: string; count: number }[]> {
  // Events have no unique index by id.
  const once = kind === 'event' ? '' : `on conflict (${TABLES[kind].key.join(', ')}) do nothing`;
  const { rows } = await tx.query<{ org_id: string; count: number }>(
    `with loaded as (${LOADS[kind]} ${once} returning ${kind === 'org' ? 'id as org_id' : 'org_id'})
     select org_id, count(*) from loaded group by org_id`,
    [at],
  );
  return rows;
}

/** Removes the unused host volumes that an imported one replaces. */
export async function removeReplacedHostVolumes(tx: EventSql, at: Instant): Promise<void> {
  await tx.query(
    `update volumes v set removed_at = $1
     where ${UNUSED_HOST}
       and exists (select from staged_volume t
         where t.org_id = v.org_id and t.kind = 'host' and t.removed_at is null)`,
    [at],
  );
}

/** Counts usage in the partition of imports (see 0011). Services use 0 and above. */
export async function selectUsagePartition(tx: Sql): Promise<void> {
  await tx.query('set local sandkeep.usage_part = -1');
}

export async function insertImportedLabels(tx: Sql): Promise<void> {
  await tx.query(
    `insert into sandbox_labels (org_id, key, value, created_at, sandbox_id)
     select s.org_id, label.key, label.value, s.created_at, s.id
     from staged_sandbox t
     join sandboxes s on s.org_id = t.org_id and s.id = t.id and s.removed_at is null and s.runtime is null
     cross join lateral json_each_text(s.spec -> 'labels') as label
     on conflict do nothing`,
  );
}

export async function orgsWithoutHostVolume(tx: EventSql): Promise<string[]> {
  const { rows } = await tx.query<{ id: string }>(
    `select o.id from orgs o
     where not exists (
       select from volumes v where v.org_id = o.id and v.kind = 'host' and v.removed_at is null)`,
  );
  return rows.map(({ id }) => id);
}
