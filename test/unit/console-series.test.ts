import fc from 'fast-check';
import { expect, test } from 'vitest';
import { stack, type Amount } from '../../console/src/usage/series.js';
import { daysOf, dayAfter, presets } from '../../console/src/usage/window.js';

const DAYS = ['2028-02-28', '2028-02-29', '2028-03-01'];

/** Whole numbers, so that sums are exact in any order. */
const amounts = fc.array(
  fc.record<Amount>({
    day: fc.constantFrom(...DAYS, '2028-03-02'),
    owner: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g'),
    amount: fc.nat(1_000_000),
  }),
);

const sum = (rows: readonly Amount[]) => rows.reduce((total, { amount }) => total + amount, 0);

test('each amount of the window is in exactly one bar, and the bars of a day add up to its sum', () => {
  fc.assert(
    fc.property(amounts, fc.nat(8), (rows, most) => {
      const inside = rows.filter(({ day }) => DAYS.includes(day));
      const { series, others, otherCount, totals } = stack(rows, DAYS, most);
      const owners = [...new Set(inside.map(({ owner }) => owner))];
      expect(series.length + otherCount).toBe(owners.length);
      expect(series.length).toBe(Math.min(most, owners.length));
      for (const [place, day] of DAYS.entries()) {
        const today = inside.filter((row) => row.day === day);
        expect(totals[place]).toBe(sum(today));
        for (const { owner, amounts: own } of series) {
          expect(own[place]).toBe(sum(today.filter((row) => row.owner === owner)));
        }
        const apart = series.reduce((total, { amounts: own }) => total + own[place]!, 0);
        expect(apart + (others?.amounts[place] ?? 0)).toBe(sum(today));
      }
      const least = Math.min(...series.map(({ total }) => total));
      const named = new Set(series.map(({ owner }) => owner));
      for (const owner of owners.filter((each) => !named.has(each))) {
        expect(sum(inside.filter((row) => row.owner === owner))).toBeLessThanOrEqual(least);
      }
    }),
  );
});

test('a window has every UTC day, also over a leap day and the end of a year', () => {
  expect(daysOf({ since: '2028-02-28', until: '2028-03-02' })).toEqual(DAYS);
  expect(daysOf({ since: '2028-12-31', until: '2029-01-02' })).toEqual(['2028-12-31', '2029-01-01']);
  expect(dayAfter('2028-03-01', -1)).toBe('2028-02-29');
});

test('the presets end with the present UTC day or month', () => {
  expect(presets(Date.parse('2028-01-31T23:59:59Z'))).toEqual({
    '7 days': { since: '2028-01-25', until: '2028-02-01' },
    '30 days': { since: '2028-01-02', until: '2028-02-01' },
    'This month': { since: '2028-01-01', until: '2028-02-01' },
    'Last month': { since: '2027-12-01', until: '2028-01-01' },
  });
});
