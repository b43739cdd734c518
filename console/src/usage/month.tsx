import { call } from '../lib/api';
import type { QuotaUsage, UsageLineItem } from '../lib/api-types';
import { amountOf } from '../lib/money';
import { useResource } from '../lib/use-resource';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Table, type Column } from '../parts/table';
import { hours } from './metrics';

const TITLES: Record<string, string> = {
  vcpu: 'CPU',
  memory_gib: 'Memory',
  disk_gib: 'Disk',
  storage_gib: 'Storage',
};
const UNITS: Record<string, string> = {
  vcpu_hour: 'vCPU-hours',
  memory_gib_hour: 'GiB-hours',
  disk_gib_hour: 'GiB-hours',
  storage_gib_hour: 'GiB-hours',
};
/** The quota with the included amount of a line. */
const INCLUDED: Record<string, keyof QuotaUsage> = {
  vcpu: 'included_vcpu_hours',
  memory_gib: 'included_memory_gib_hours',
  disk_gib: 'included_disk_gib_hours',
};

/** The UTC month of the first chosen day, with its cost. */
export function Month({ month }: { month: string }) {
  const summary = useResource(`month:${month}`, (signal) =>
    call('GET /v1/billing/usage', { query: { month }, signal }),
  );
  const quotas = useResource('quotas', (signal) => call('GET /v1/quotas', { signal }));
  return (
    <Loaded resource={summary}>
      {(report) => {
        const { line_items, total_cents, projected_spend_cents, currency, storage_gib } = report;
        const amount = (cents: number) => amountOf(report, cents);
        const columns: readonly Column<UsageLineItem>[] = [
          { title: `Month ${month}`, cell: ({ name }) => TITLES[name] ?? name },
          { title: 'Used', cell: ({ quantity }) => hours(quantity), isNumber: true },
          { title: 'Unit', cell: ({ unit }) => UNITS[unit] ?? unit, isMinor: true },
          {
            title: 'Included by quota',
            cell: ({ name }) => included(quotas.data, name),
            isNumber: true,
            isMinor: true,
          },
          { title: 'Cost', cell: ({ amount_cents }) => amount(amount_cents), isNumber: true },
        ];
        return (
          <>
            <Facts
              of={[
                [`Cost of ${month}`, <b class="figure">{amount(total_cents)}</b>],
                ['Projection to the end of the month', amount(projected_spend_cents)],
                ['Storage by the latest readings', storage_gib === null ? '–' : `${hours(storage_gib)} GiB`],
              ]}
            />
            {currency === null && (
              <p>
                <small>
                  There is no price book, so nothing has a cost. The operator gives one with{' '}
                  <code>sandkeep serve --price-book</code>.
                </small>
              </p>
            )}
            <Table
              caption={`Use and cost of ${month}`}
              columns={columns}
              rows={line_items}
              id={({ name }) => name}
              name={({ name }) => name}
            />
          </>
        );
      }}
    </Loaded>
  );
}

function included(quota: QuotaUsage | undefined, name: string): string {
  const field = INCLUDED[name];
  const amount = quota === undefined || field === undefined ? null : quota[field];
  return typeof amount === 'number' ? hours(amount) : '–';
}
