import type { Sql } from '../db/pool.js';
import type { Kind } from './schema.js';
import { KINDS, TABLES } from './staging-queries.js';

export interface BadLineReport {
  line: number;
  reason: string;
}

/** A host volume that was never mounted or measured. An imported host volume replaces it. */
export const UNUSED_HOST = `v.kind = 'host' and v.removed_at is null
  and not exists (select from accruals a where a.org_id = v.org_id and a.volume_id = v.id)
  and not exists (select from sandbox_volumes m where m.org_id = v.org_id and m.volume_id = v.id)`;

/** The conflicts of staged lines with other lines and with the store, in order. */
const CHECKS: { kind: Kind; reason: string; bad: string }[] = [
  {
    kind: 'org',
    reason: 'another organization has this slug',
    bad: `exists (select from orgs o where o.slug = t.slug and o.id <> t.id)
       or exists (select from staged_org o where o.slug = t.slug and o.id <> t.id and o.line < t.line)`,
  },
  ...KINDS.filter((kind) => kind !== 'org').map((kind) => ({
    kind,
    reason: 'there is no organization with this org_id, neither in the store nor in the file',
    bad: `not exists (select from orgs o where o.id = t.org_id)
       and not exists (select from staged_org o where o.id = t.org_id)`,
  })),
  {
    kind: 'sandbox',
    reason: 'another sandbox of the organization has this name and is not removed',
    bad: `t.removed_at is null and (
         exists (select from sandboxes s
           where s.org_id = t.org_id and s.name = t.name and s.removed_at is null and s.id <> t.id)
         or exists (select from staged_sandbox s
           where s.org_id = t.org_id and s.name = t.name and s.removed_at is null and s.id <> t.id and s.line < t.line))`,
  },
  {
    kind: 'sandbox',
    reason: 'another sandbox has this slug and is not removed',
    bad: `t.removed_at is null and (
         exists (select from sandboxes s where s.slug = t.slug and s.removed_at is null and (s.org_id, s.id) <> (t.org_id, t.id))
         or exists (select from staged_sandbox s
           where s.slug = t.slug and s.removed_at is null and (s.org_id, s.id) <> (t.org_id, t.id) and s.line < t.line))`,
  },
  {
    kind: 'run',
    reason: 'the organization has no sandbox with this sandbox_id, neither in the store nor in the file',
    bad: `not exists (select from sandboxes s where s.org_id = t.org_id and s.id = t.sandbox_id)
       and not exists (select from staged_sandbox s where s.org_id = t.org_id and s.id = t.sandbox_id)`,
  },
  {
    kind: 'run',
    reason: 'this service runs the sandbox and records its open run: stopped_at must not be null',
    bad: `t.stopped_at is null
       and exists (select from sandboxes s where s.org_id = t.org_id and s.id = t.sandbox_id and s.runtime is not null)`,
  },
  {
    kind: 'run',
    reason: 'the sandbox has another run that is not stopped',
    bad: `t.stopped_at is null and (
         exists (select from runs r
           where r.org_id = t.org_id and r.sandbox_id = t.sandbox_id and r.end_reason is null and r.id <> t.id)
         or exists (select from staged_run r
           where r.org_id = t.org_id and r.sandbox_id = t.sandbox_id and r.stopped_at is null and r.id <> t.id
             and r.line < t.line))`,
  },
  {
    kind: 'volume',
    reason: 'the organization has another host volume',
    bad: `t.kind = 'host' and t.removed_at is null and (
         exists (select from volumes v
           where v.org_id = t.org_id and v.kind = 'host' and v.removed_at is null and v.id <> t.id
             and not (${UNUSED_HOST}))
         or exists (select from staged_volume v
           where v.org_id = t.org_id and v.kind = 'host' and v.removed_at is null and v.id <> t.id and v.line < t.line))`,
  },
  {
    kind: 'volume',
    reason: 'another volume of the organization has this name and is not removed',
    bad: `t.kind = 'managed' and t.removed_at is null and (
         exists (select from volumes v
           where v.org_id = t.org_id and v.name = t.name and v.status = 'active' and v.removed_at is null and v.id <> t.id)
         or exists (select from staged_volume v
           where v.org_id = t.org_id and v.name = t.name and v.removed_at is null and v.id <> t.id and v.line < t.line))`,
  },
  {
    kind: 'accrual',
    reason: 'an earlier line has another accrual of this volume from the same time',
    bad: `exists (select from staged_accrual a
      where a.org_id = t.org_id and a.volume_id = t.volume_id and a.from_at = t.from_at
        and (a.to_at, a.used_mib) <> (t.to_at, t.used_mib) and a.line < t.line)`,
  },
];

/** Without these the checks take minutes for a large organization. */
const INDEXES = [
  'staged_org (id)',
  'staged_org (slug)',
  'staged_sandbox (org_id, id)',
  'staged_sandbox (org_id, name) where removed_at is null',
  'staged_sandbox (slug) where removed_at is null',
  'staged_run (org_id, sandbox_id) where stopped_at is null',
  "staged_volume (org_id) where kind = 'host' and removed_at is null",
  'staged_volume (org_id, name) where removed_at is null',
  'staged_accrual (org_id, volume_id, from_at)',
];

/** Known lines are not checked: they may describe a past state, such as a name now in use. */
export async function removeKnownLines(tx: Sql): Promise<void> {
  for (const index of INDEXES) await tx.query(`create index on ${index}`);
  for (const kind of KINDS) {
    await tx.query(`analyze staged_${kind}`);
    if (kind === 'event') continue;
    const { name, key } = TABLES[kind];
    const same = key.map((column) => `r.${column} = t.${column}`).join(' and ');
    await tx.query(`delete from staged_${kind} t using ${name} r where ${same}`);
  }
  // Events have no index by id: the queue and the log have one.
  for (const name of ['unsealed_events', 'event_log']) {
    await tx.query(
      `delete from staged_event t using ${name} r where r.org_id = t.org_id and r.event_id = t.id`,
    );
  }
}

export async function removeBadLines(tx: Sql): Promise<(BadLineReport & { kind: Kind })[]> {
  const found: (BadLineReport & { kind: Kind })[] = [];
  for (const { kind, reason, bad } of CHECKS) {
    const { rows } = await tx.query<{ line: number }>(
      `delete from staged_${kind} t where ${bad} returning line`,
    );
    found.push(...rows.map(({ line }) => ({ line, reason, kind })));
  }
  return found;
}
