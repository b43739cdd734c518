import type { BudgetResponse, CreateBudgetRequest } from '../lib/api-types';

type Measure = BudgetResponse['measure'];
type Action = BudgetResponse['action'];

/** The units of the measures, but for money, which has its currency. */
export const UNITS: Record<Exclude<Measure, 'cost'>, string> = {
  vcpu_hours: 'vCPU-hours',
  memory_gib_hours: 'GiB-hours of memory',
  disk_gib_hours: 'GiB-hours of disk',
  sandbox_hours: 'sandbox-hours',
};

export const ACTIONS: Record<Action, { title: string; words: string }> = {
  warn: { title: 'Only write events', words: 'At 100 % there is an event, and everything runs on.' },
  refuse_starts: {
    title: 'Refuse starts',
    words: 'At 100 % nothing that it covers can be started until the next month.',
  },
  stop: {
    title: 'Refuse starts, and stop',
    words:
      'At 100 % nothing that it covers can be started, and running sandboxes are stopped, except those with the label sandkeep.keep=true.',
  },
};

type Amounts = Pick<BudgetResponse, 'measure' | 'currency' | 'limit'>;

/**
 * An amount of a budget in its unit. The use is cut and not rounded, with at least the digits of the limit: so it looks
 * used up only when it is.
 */
export function amountIn({ measure, currency, limit }: Amounts, amount: string | null): string {
  if (amount === null) return 'unknown';
  const digits = Math.max(2, limit.split('.')[1]?.length ?? 0);
  const style = { maximumFractionDigits: digits, roundingMode: 'trunc' } as const;
  if (measure === 'cost') {
    if (currency === null) return amount;
    return new Intl.NumberFormat('en', { ...style, style: 'currency', currency }).format(Number(amount));
  }
  return `${new Intl.NumberFormat('en', style).format(Number(amount))} ${UNITS[measure]}`;
}

/** `612.5 of 1,000 vCPU-hours`. */
export function spentOf(budget: BudgetResponse): string {
  const unit = budget.measure === 'cost' ? '' : ` ${UNITS[budget.measure]}`;
  const used = amountIn(budget, budget.used);
  const short = unit !== '' && used.endsWith(unit) ? used.slice(0, -unit.length) : used;
  return `${short} of ${amountIn(budget, budget.limit)}`;
}

/** The forecast in per cent of the limit, rounded. Undefined: the budget is not priced. */
export function forecastPercent({ forecast, limit }: BudgetResponse): number | undefined {
  return forecast === null ? undefined : Math.round((Number(forecast) / Number(limit)) * 100);
}

/** The scope as words, such as `the key ci`. `keys`: the names of keys by id. */
export function coveredBy(scope: CreateBudgetRequest['scope'], keys: ReadonlyMap<string, string>): string {
  if (scope.type === 'organization') return 'the whole organization';
  if (scope.type === 'label') return `sandboxes with ${scope.key}=${scope.value}`;
  return `runs of the key ${keys.get(scope.api_key_id) ?? scope.api_key_id}`;
}

export const monthOf = ({ period_start }: Pick<BudgetResponse, 'period_start'>) => period_start.slice(0, 7);
