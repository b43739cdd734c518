import { call } from '../lib/api';
import type { QuotaUsage } from '../lib/api-types';
import { useLive } from '../lib/live';
import { useResource } from '../lib/use-resource';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Meter } from '../parts/meter';
import { quotaRows, words } from './quota-rows';

/** Limits of each sandbox, and of storage, whose use the API does not show beside them. */
const others = (quota: QuotaUsage): readonly (readonly [string, number | null | undefined, string])[] => [
  ['vCPUs of a sandbox', quota.max_vcpus_per_sandbox, ''],
  ['Memory of a sandbox', quota.max_memory_mib_per_sandbox, 'MiB'],
  ['Disk of a sandbox', quota.max_disk_size_mib_per_sandbox, 'MiB'],
  ['Longest run', quota.max_uptime_minutes_per_sandbox, 'min'],
  ['Caps of all volumes', quota.max_total_storage_gib, 'GiB'],
  ['Included storage', quota.included_storage_gib, 'GiB'],
];

export function Quotas() {
  const quota = useResource('quotas', (signal) => call('GET /v1/quotas', { signal }));
  useLive('quota', quota.reload);
  useLive('sandbox', quota.reload);
  return (
    <Loaded resource={quota}>
      {(data) => (
        <>
          {data.is_suspended && (
            <p class="panel fault" role="alert">
              The operator has suspended this organization. Starts are refused.
            </p>
          )}
          {data.pool_exhausted && (
            <p class="panel fault" role="alert">
              The included hours are used up. Running sandboxes are stopped, and starts are refused.
            </p>
          )}
          <Facts
            of={quotaRows(data).map((row) => [
              row.title,
              <Meter label={row.title} used={row.used} limit={row.limit} words={row.words} />,
            ])}
          />
          <Facts
            of={others(data).map(([title, limit, unit]) => [
              title,
              limit == null ? 'no limit' : words(unit)(limit),
            ])}
          />
          <p>
            <small>
              {data.hard_cap
                ? 'Included amounts are limits: beyond them sandboxes stop.'
                : 'Included amounts are no limits: more of them may cost more.'}{' '}
              The operator changes quotas with <code>sandkeep quota set</code>.
            </small>
          </p>
        </>
      )}
    </Loaded>
  );
}
