/** One amount of one owner (a sandbox, a value of a label, a volume) on one day. */
export interface Amount {
  day: string;
  owner: string;
  amount: number;
}

export interface Series {
  owner: string;
  /** One amount for each day. */
  amounts: number[];
  total: number;
}

export interface Stacked {
  days: readonly string[];
  /** The largest first. */
  series: Series[];
  /** The sum of all that are not in `series`. Undefined: there are none. */
  others: Series | undefined;
  /** The number of owners in `others`. */
  otherCount: number;
  totals: number[];
}

/** Sums amounts by owner and day. The `most` largest owners stay apart, the others are one sum. */
export function stack(amounts: readonly Amount[], days: readonly string[], most: number): Stacked {
  const all = sumByOwner(amounts, days);
  const series = all.slice(0, most);
  const rest = all.slice(most);
  const others = rest.length === 0 ? undefined : sumOf('', rest, days.length);
  return { days, series, others, otherCount: rest.length, totals: sumOf('', all, days.length).amounts };
}

/** The owners with amounts, the largest first. */
export function sumByOwner(amounts: readonly Amount[], days: readonly string[]): Series[] {
  const placeOf = new Map(days.map((day, place) => [day, place]));
  const byOwner = new Map<string, Series>();
  for (const { day, owner, amount } of amounts) {
    const place = placeOf.get(day);
    if (place === undefined) continue;
    let series = byOwner.get(owner);
    if (series === undefined) byOwner.set(owner, (series = { owner, amounts: days.map(() => 0), total: 0 }));
    series.amounts[place]! += amount;
    series.total += amount;
  }
  return [...byOwner.values()].toSorted((a, b) => b.total - a.total || (a.owner < b.owner ? -1 : 1));
}

function sumOf(owner: string, series: readonly Series[], length: number): Series {
  const amounts = Array.from({ length }, (_, place) =>
    series.reduce((sum, each) => sum + each.amounts[place]!, 0),
  );
  return { owner, amounts, total: series.reduce((sum, { total }) => sum + total, 0) };
}
