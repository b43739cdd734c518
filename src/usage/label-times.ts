import type { Conditions } from '../lib/conditions.js';
import { covers } from './queries.js';
import type { TimeRange } from './window.js';

/** The most keys of a report: each key sorts the label changes of all sandboxes once more. */
export const MOST_LABEL_KEYS = 4;

/**
 * CTEs of the times at which sandboxes had each combination of values of the keys. A missing key has the value null. A
 * combination has at least one value. `selected`: intersected with the selected times.
 */
export function labelledSandboxes(
  c: Conditions,
  orgId: string,
  keys: readonly string[],
  selected: boolean,
  days: TimeRange | undefined,
): string {
  const labelled =
    keys.length === 1 ? timesOfValues(c, orgId, keys[0]!) : timesOfCombinations(c, orgId, keys);
  return `${labelled}, held (sandbox_id, label_values, times, whole) as materialized (
      select l.sandbox_id, l.label_values, l.times ${selected ? '* k.times' : ''},
        ${covers(c, 'l.times', days)} ${selected ? 'and k.whole' : ''}
      from labelled l ${selected ? 'join selected k on k.sandbox_id = l.sandbox_id' : ''})`;
}

/** The combinations of one key are its values. This query sorts nothing. */
function timesOfValues(c: Conditions, orgId: string, key: string): string {
  return `labelled (sandbox_id, label_values, times) as (
      select p.sandbox_id, array[p.value], range_agg(tstzrange(p.from_at, p.to_at))
      from label_periods p
      where p.org_id = ${c.parameter(orgId)} and p.key = ${c.parameter(key)}
      group by p.sandbox_id, p.value)`;
}

/**
 * Between two changes of any of the keys, each key has its latest value. The cost grows with the number of changes. A
 * join of the periods of each key would grow with the product of their numbers: 16 x 10^12 for 2,000 changes of four
 * keys.
 */
function timesOfCombinations(c: Conditions, orgId: string, keys: readonly string[]): string {
  const each = (column: (key: string, index: number) => string) => keys.map(column).join(', ');
  const parameters = keys.map((key) => `${c.parameter(key)}::text`);
  // Where a period ends and the next of its key begins, max() ignores the null of the end.
  const changed = each(
    (_, index) => `max(e.value) filter (where p.key = ${parameters[index]}) as value_${index},
          bool_or(p.key = ${parameters[index]}) as changed_${index}`,
  );
  const numbers = each(
    (_, index) =>
      `n.value_${index}, count(*) filter (where n.changed_${index}) over changes as number_${index}`,
  );
  const latest = each(
    (_, index) =>
      `first_value(v.value_${index}) over (partition by v.sandbox_id, v.number_${index} order by v.at)`,
  );
  return `changed as (
      select p.sandbox_id, e.at, ${changed}
      from label_periods p cross join lateral (values (p.from_at, p.value), (p.to_at, null)) e (at, value)
      where p.org_id = ${c.parameter(orgId)} and p.key in (${parameters.join(', ')}) and e.at < 'infinity'
      group by p.sandbox_id, e.at
    ), numbered as (
      select n.sandbox_id, n.at, lead(n.at, 1, 'infinity'::timestamptz) over changes as until_at, ${numbers}
      from changed n window changes as (partition by n.sandbox_id order by n.at)
    ), between_changes as (
      select v.sandbox_id, v.at, v.until_at, array[${latest}] as label_values from numbered v
    ), labelled (sandbox_id, label_values, times) as (
      select b.sandbox_id, b.label_values, range_agg(tstzrange(b.at, b.until_at))
      from between_changes b
      where num_nonnulls(variadic b.label_values) > 0
      group by b.sandbox_id, b.label_values)`;
}
