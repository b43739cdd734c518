import { Link } from 'wouter-preact';
import { BudgetBar } from '../budgets/bar';
import { spentOf } from '../budgets/words';
import { call } from '../lib/api';
import type { BudgetResponse, UsageSummary } from '../lib/api-types';
import { amountOf } from '../lib/money';
import { useResource } from '../lib/use-resource';
import { Facts } from '../parts/facts';
import { hours } from '../usage/metrics';
import { Part } from './part';

/** The cost of this UTC month beside that of the last, and the budget of the organization. */
export function Cost({ budgets }: { budgets: readonly BudgetResponse[] }) {
  const [month, before] = [monthOf(0), monthOf(1)];
  const costs = useResource(`costs:${month}`, async (signal) => {
    const [current, last] = await Promise.all(
      [month, before].map((each) => call('GET /v1/billing/usage', { query: { month: each }, signal })),
    );
    return { current: current!, last: last! };
  });
  return (
    <Part title="Cost" resource={costs} more={<Link href="/usage">Usage</Link>}>
      {({ current, last }) =>
        current.currency === null ? (
          <>
            <OwnBudget of={budgetOf(budgets)} />
            <Facts
              of={[
                [`vCPU-hours of ${month}`, hours(vcpuHours(current))],
                [`vCPU-hours of ${before}`, hours(vcpuHours(last))],
              ]}
            />
            <p>
              <small>
                Nothing has a cost yet: the operator gives prices with{' '}
                <code>sandkeep serve --price-book</code>.
              </small>
            </p>
          </>
        ) : (
          <>
            <p class="figures">
              <span>
                <b>{amountOf(current, current.total_cents)}</b> so far in {month}
              </span>
            </p>
            <OwnBudget of={budgetOf(budgets)} />
            <Facts
              of={[
                [
                  'Projection to the end of the month',
                  <>
                    {amountOf(current, current.projected_spend_cents)}{' '}
                    <small>{changeOf(current.projected_spend_cents, last.total_cents)}</small>
                  </>,
                ],
                [`Cost of ${before}`, amountOf(last, last.total_cents)],
              ]}
            />
          </>
        )
      }
    </Part>
  );
}

/** The budget of the organization that is closest to its end, those of money first. */
function budgetOf(budgets: readonly BudgetResponse[]): BudgetResponse | undefined {
  const rank = ({ measure, used_percent }: BudgetResponse) =>
    (measure === 'cost' ? Number.MAX_SAFE_INTEGER / 2 : 0) + (used_percent ?? 0);
  return budgets
    .filter(({ scope, state }) => scope.type === 'organization' && state !== 'unpriced')
    .toSorted((a, b) => rank(b) - rank(a))[0];
}

function OwnBudget({ of }: { of: BudgetResponse | undefined }) {
  if (of === undefined) return null;
  return (
    <div>
      <p class="budget-line">
        <Link href="/budgets">{of.name}</Link>
        <span>
          {spentOf(of)} <small>{of.used_percent} %</small>
        </span>
      </p>
      <BudgetBar of={of} />
    </div>
  );
}

/** `back`: the number of months before the current one. */
function monthOf(back: number): string {
  const now = new Date();
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back)).toISOString().slice(0, 7);
}

function changeOf(cents: number, before: number): string {
  if (before === 0) return '';
  const percent = Math.round((cents / before - 1) * 100);
  return percent === 0
    ? 'as last month'
    : `${Math.abs(percent)} % ${percent > 0 ? 'more' : 'less'} than last month`;
}

function vcpuHours({ line_items }: UsageSummary): number {
  return line_items.find(({ name }) => name === 'vcpu')?.quantity ?? 0;
}
