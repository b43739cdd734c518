import { Link } from 'wouter-preact';
import type { QuotaUsage, SandboxSummary } from '../lib/api-types';
import type { Resource } from '../lib/use-resource';
import { quotaRows } from '../organization/quota-rows';
import { Facts } from '../parts/facts';
import { Meter } from '../parts/meter';
import { counted } from './counted';
import { Part } from './part';

interface CapacityProps {
  quota: Resource<QuotaUsage>;
  summary: SandboxSummary | undefined;
}

/** The quotas with their use, and the number of starts that wait for room. */
export function Capacity({ quota, summary }: CapacityProps) {
  return (
    <Part title="Capacity" resource={quota} more={<Link href="/organization">Quotas</Link>}>
      {(data) => {
        const limited = quotaRows(data).filter(({ limit }) => limit != null);
        return (
          <>
            {limited.length === 0 ? (
              <p>No quota limits this organization.</p>
            ) : (
              <Facts
                of={limited.map(({ title, used, limit, words }) => [
                  title,
                  <Meter label={title} used={used} limit={limit} words={words} />,
                ])}
              />
            )}
            {summary !== undefined && (
              <p>
                {summary.waiting === 0 ? (
                  <small>No start waits for room on a worker.</small>
                ) : (
                  <Link href="/sandboxes?status=starting">
                    {counted(summary.waiting)} {summary.waiting === 1 ? 'start waits' : 'starts wait'} for
                    room on a worker
                  </Link>
                )}
              </p>
            )}
          </>
        );
      }}
    </Part>
  );
}
