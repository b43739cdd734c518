import type { Transaction } from '../db/transaction.js';
import {
  COMPUTE_METRICS,
  inUnits,
  METRICS,
  roundedText,
  sumOf,
  type Decimal,
  type PriceBook,
  type Quantities,
} from '../prices/price.js';
import { GroupCosts } from '../usage/group-costs.js';
import { largestCombinations } from '../usage/label-queries.js';
import type { UsageFilter } from '../usage/queries.js';
import { largestSandboxes, type GroupDay } from '../usage/summary-queries.js';
import { totalsByDay } from '../usage/summary.js';
import type { Window } from '../usage/window.js';
import { table, type TableOptions } from './table.js';

/** In characters: the longest bar, and the other columns of its line. */
const BAR = 40;
const BESIDE_BAR = 45;
const COST_COLUMN = 16;
const MOST_SHOWN = 20;

export interface Pictured {
  window: Window;
  book: PriceBook | null;
  /** The keys of labels. Empty: by sandbox. */
  keys: readonly string[];
}

/** The largest groups as a table, and a bar for each day. Without a price book there is no cost. */
export async function usagePicture(
  tx: Transaction,
  scope: UsageFilter,
  { window, book, keys }: Pictured,
  options: TableOptions,
): Promise<string> {
  const days = await totalsByDay(tx, scope.orgId, window);
  if (days.size === 0) return 'no usage\n';
  const costs = book && (await GroupCosts.read(tx, scope.orgId, window, { ownBook: book, metrics: METRICS }));
  const money = costs && new Money(costs);
  const { days: parts, count } =
    keys.length === 0
      ? await largestSandboxes(tx, scope.orgId, window, MOST_SHOWN)
      : await largestCombinations(tx, scope, keys, window, MOST_SHOWN);
  const groups = sumByGroup(parts, money);
  const tables: string[] = [];
  if (count > 0) {
    const labels = keys.length === 0 ? ['SANDBOX'] : keys;
    const blank = labels.slice(1).map(() => '');
    const shown = groups.map(({ names, used, cost }) => [...names.map(nameText), ...hours(used), ...cost]);
    const none = ['', '', '', ...(money ? [''] : [])];
    const more = count > groups.length ? [[`(${count - groups.length} more)`, ...blank, ...none]] : [];
    const compute = new Map([...days].map(([day, used]) => [day, { ...used, storage_gib_hour: 0n }]));
    const all = ['all', ...blank, ...hours(sumOf([...days.values()])), ...(money?.ofDays(compute) ?? [])];
    const head = [...labels, 'vCPU HOURS', 'GiB HOURS MEMORY', 'GiB HOURS DISK', ...(money?.head ?? [])];
    tables.push(`${table(head, [...shown, ...more, all], options)}\n\n`);
  }
  return `${tables.join('')}${chart(days, money, options)}\n`;
}

/** A label that is missing, and one without a text, look alike otherwise. */
function nameText(name: string | null): string {
  return name === null ? '(none)' : name || '(empty)';
}

/** Writes costs as cells of a table, with the decimal digits of the currency. */
class Money {
  constructor(private readonly costs: GroupCosts) {}

  get head(): string[] {
    return [`COST ${this.costs.book.currency}`];
  }

  ofGroup(day: string, used: Partial<Quantities>): Decimal {
    return this.costs.add(day, used);
  }

  ofDays(days: ReadonlyMap<string, Quantities>): string[] {
    return [this.text([...days].map(([day, used]) => this.costs.ofDay(day, used)))];
  }

  text(parts: readonly Decimal[]): string {
    const value = parts.reduce((sum, part) => sum + part.value, 0n);
    return roundedText({ value, scale: parts[0]?.scale ?? 0 }, this.costs.book.minorUnitDigits);
  }
}

interface Group {
  names: (string | null)[];
  used: Quantities;
  cost: string[];
}

function sumByGroup(days: readonly GroupDay[], money: Money | null): Group[] {
  const groups: { names: (string | null)[]; used: Quantities; costs: Decimal[] }[] = [];
  for (const { place, names, day, used } of days) {
    const group = (groups[place] ??= { names, used: sumOf([]), costs: [] });
    group.used = sumOf([group.used, used]);
    if (money) group.costs.push(money.ofGroup(day, used));
  }
  return groups.map(({ names, used, costs }) => ({ names, used, cost: money ? [money.text(costs)] : [] }));
}

function hours(used: Quantities): string[] {
  return COMPUTE_METRICS.map((metric) => inUnits(metric, used[metric]).toFixed(2));
}

function chart(days: ReadonlyMap<string, Quantities>, money: Money | null, options: TableOptions): string {
  const rows = [...days].map(([day, used]) => ({
    day,
    vcpus: inUnits('vcpu_hour', used.vcpu_hour),
    storage: inUnits('storage_gib_hour', used.storage_gib_hour),
    cost: money?.ofDays(new Map([[day, used]])) ?? [],
  }));
  const most = Math.max(...rows.map(({ vcpus }) => vcpus));
  const beside = BESIDE_BAR + (money ? COST_COLUMN : 0);
  const longest = Math.max(10, Math.min(BAR, (process.stdout.columns ?? Infinity) - beside));
  const bar = (value: number) =>
    value === 0 ? '' : '█'.repeat(Math.max(1, Math.round((value / most) * longest)));
  return table(
    ['DAY', 'GiB HOURS STORAGE', 'vCPU HOURS', ...(money?.head ?? []), ''],
    rows.map(({ day, vcpus, storage, cost }) => [
      day,
      storage.toFixed(2),
      vcpus.toFixed(2),
      ...cost,
      bar(vcpus),
    ]),
    options,
  );
}
