import type { ComponentChildren } from 'preact';
import type { BudgetResponse } from '../lib/api-types';
import { Badge } from '../parts/badge';
import { Facts } from '../parts/facts';
import { Time } from '../parts/time';
import { BudgetBar } from './bar';
import './budgets.css';
import { ACTIONS, amountIn, coveredBy, forecastPercent, monthOf, spentOf } from './words';

interface BudgetProps {
  of: BudgetResponse;
  /** The names of keys by id. */
  keys: ReadonlyMap<string, string>;
  actions: ComponentChildren;
}

/** One budget with its use in this month. */
export function Budget({ of: budget, keys, actions }: BudgetProps) {
  const { name, state, used_percent, action, thresholds, reached, period_end } = budget;
  return (
    <section class="panel budget" aria-label={name}>
      <header>
        <h2>{name}</h2>
        <Badge status={STATES[state]} />
        {actions}
      </header>
      <p>Covers {coveredBy(budget.scope, keys)}.</p>
      <BudgetBar of={budget} />
      {state === 'unpriced' ? (
        <p>
          The limit is {amountIn(budget, budget.limit)}. It enforces nothing: the service has no price book in
          its currency. The operator gives one.
        </p>
      ) : (
        <Facts
          of={[
            [
              `Used in ${monthOf(budget)}`,
              <>
                <b>{spentOf(budget)}</b> <small>{used_percent} %</small>
              </>,
            ],
            [
              'Forecast for the month',
              <>
                {amountIn(budget, budget.forecast)} <small>{forecastPercent(budget)} %</small>
              </>,
            ],
            [
              'Events at',
              <>
                {thresholds.map((threshold) => `${threshold} %`).join(', ')}{' '}
                {reached.length > 0 && <small>{reached.at(-1)} % reached</small>}
              </>,
            ],
            ['Renews', <Time at={period_end} />],
          ]}
        />
      )}
      <p>{ACTIONS[action].words}</p>
    </section>
  );
}

const STATES: Record<BudgetResponse['state'], string> = {
  ok: 'within the limit',
  warning: 'threshold reached',
  exhausted: 'used up',
  unpriced: 'not priced',
};
