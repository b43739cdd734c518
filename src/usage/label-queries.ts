import { Conditions } from '../lib/conditions.js';
import { csvFieldSql } from '../lib/csv.js';
import {
  labelledSandboxes,
  looseStretches,
  pickedSandboxes,
  storedDays,
  type Format,
  type Query,
  type Scope,
} from './queries.js';
import type { Slab } from './window.js';

const QUANTITIES: Record<Format, string> = {
  json: `'"vcpu_seconds":' || f.vcpu_seconds || ',"mem_mib_seconds":' || f.memory_mib_seconds
      || ',"disk_mib_seconds":' || f.disk_mib_seconds || '}'`,
  csv: `f.vcpu_seconds || ',' || f.memory_mib_seconds || ',' || f.disk_mib_seconds`,
};

const HEADS: Record<Format, string> = {
  json: `'{"day":"' || f.day || 'T00:00:00Z",' || coalesce('"value":' || to_json(f.value) || ',', '')`,
  csv: `f.day || ',' || case when f.value is null then 'unlabelled,' else 'labelled,' || ${csvFieldSql('f.value')} end || ','`,
};

const COLUMNS = ['micros', 'vcpu_micros', 'memory_mib_micros', 'disk_mib_micros'] as const;

/**
 * Rows (whether labelled, line) for each UTC day and value that a label had while something ran, by day, then value; last of each
 * day what ran without the label, which is what is left of the whole.
 */
export function labelRows(scope: Scope, key: string, slab: Slab, format: Format): Query {
  const c = new Conditions();
  const { orgId } = scope;
  const picked = pickedSandboxes(c, scope, slab.wholeOfWindow);
  const held = labelledSandboxes(c, orgId, key, picked !== undefined, slab.wholeOfWindow);
  const all = looseStretches(c, orgId, slab, picked === undefined ? undefined : 'picked');
  const labelled = looseStretches(c, orgId, slab, 'held');
  const sums = COLUMNS.map((column) => `sum(p.${column}) as ${column}`).join(', ');
  const parts = (stretches: string, value: string) =>
    `select ${value} d.day, d.micros::numeric as micros, d.micros::numeric * t.vcpus as vcpu_micros,
       d.micros::numeric * t.memory_mib as memory_mib_micros, d.micros::numeric * t.disk_mib as disk_mib_micros
     from ${stretches} t cross join lateral days_of(t.from_at, t.to_at) d`;
  const stored = (value: string, join: string, condition: string) =>
    slab.whole
      ? `union all select ${value} u.day, u.micros, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros
         from usage_days u ${join} where ${storedDays(c, orgId, slab.whole)} ${condition}`
      : '';
  const left = COLUMNS.map((column) => `t.${column} - coalesce(sum(v.${column}), 0) as ${column}`).join(', ');
  const totals = COLUMNS.map((column) => `t.${column}`).join(', ');
  const seconds = ['vcpu', 'memory_mib', 'disk_mib'].map(
    (name) => `(${name}_micros * 0.000001)::float8 as ${name}_seconds`,
  );
  const onlyPicked = picked ? 'and u.sandbox_id in (select k.sandbox_id from picked k where k.whole)' : '';
  const text = `with ${picked ? `${picked}, ` : ''}${held},
    all_stretches as (${all}),
    labelled_stretches as (${labelled}),
    by_day as materialized (
      select p.day, ${sums} from (
        ${parts('all_stretches', '')} ${stored('', '', onlyPicked)}) p
      group by p.day),
    by_value as materialized (
      select p.day, p.value, ${sums} from (
        ${parts('labelled_stretches', 't.value,')}
        ${stored('h.value,', 'join held h on h.sandbox_id = u.sandbox_id and h.whole', '')}) p
      group by p.day, p.value),
    finished as (
      select day, value, ${seconds.join(', ')} from (
        select v.day, v.value, ${COLUMNS.map((column) => `v.${column}`).join(', ')} from by_value v
        union all
        select t.day, null, ${left}
        from by_day t left join by_value v on v.day = t.day
        group by t.day, ${totals}) r
      where r.micros > 0)
    select f.value is not null, ${HEADS[format]} || ${QUANTITIES[format]}
    from finished f
    order by f.day, f.value collate "C" nulls last`;
  return { text, values: c.values };
}
