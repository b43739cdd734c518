import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { SandboxDailyUsage, UsageLineItem, UsageSummary } from '../lib/api-types';
import { money } from '../lib/money';
import { useResource } from '../lib/use-resource';
import { Loaded } from '../parts/loaded';
import { COMPUTE } from '../usage/metrics';

const METRIC_OF: Record<string, keyof typeof COMPUTE> = {
  vcpu: 'vcpu',
  memory_gib: 'memory',
  disk_gib: 'disk',
};

/** The part of the cost of this UTC month that is as large as the sandbox's part of the use. */
export function CostShare({ sandboxId }: { sandboxId: string }) {
  const month = new Date().toISOString().slice(0, 7);
  const costs = useResource(`cost:${sandboxId}:${month}`, async (signal) => {
    const query = { since: `${month}-01`, sandbox_id: [sandboxId] };
    const [summary, { rows }] = await Promise.all([
      call('GET /v1/billing/usage', { query: { month }, signal }),
      call('GET /v1/billing/usage/sandbox', { query, signal }),
    ]);
    return { summary, rows };
  });
  return (
    <Loaded resource={costs}>
      {({ summary, rows }) => (
        <p>
          {costText(summary, rows, month)} <Link href="/usage">Usage of the organization</Link>
        </p>
      )}
    </Loaded>
  );
}

function costText(
  { line_items, currency, minor_unit_digits }: UsageSummary,
  rows: readonly SandboxDailyUsage[],
  month: string,
): string {
  if (currency === null) return 'There is no price book, so it has no cost.';
  const minor = line_items.reduce((sum, item) => sum + partOf(item, rows), 0);
  return `Its part of the cost of ${month}: ${money(minor, currency, minor_unit_digits ?? 2)}, by its part of each quantity.`;
}

function partOf({ name, quantity, amount_cents }: UsageLineItem, rows: readonly SandboxDailyUsage[]): number {
  const metric = METRIC_OF[name];
  if (metric === undefined || quantity === 0) return 0;
  const own = rows.reduce((sum, row) => sum + COMPUTE[metric].of(row), 0);
  return (own / quantity) * amount_cents;
}
