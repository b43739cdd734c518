import fc from 'fast-check';
import { expect, test } from 'vitest';
import { nextSort, sortRows, sortsOf, type Sortable } from '../../console/src/parts/sorting.js';

interface Row {
  id: number;
  size: number | null;
  name: string;
}

const SIZE: Sortable<Row> = { title: 'Disk size', isNumber: true, value: ({ size }) => size };
const NAME: Sortable<Row> = { title: 'Name', value: ({ name }) => name };
const CREATED: Sortable<Row> = { title: 'Created', sorts: ['-created_at', 'created_at'] };
const PLAIN: Sortable<Row> = { title: 'Plain' };
const COLUMNS = [SIZE, NAME, CREATED, PLAIN];

test('a head goes through its orders, and then back to that of the service', () => {
  expect(sortsOf(SIZE, true)).toEqual(['-disk_size', 'disk_size']);
  expect(sortsOf(NAME, true)).toEqual(['name', '-name']);
  expect(sortsOf(PLAIN, true)).toEqual([]);
  // A part of a list cannot be ordered here.
  expect(sortsOf(NAME, false)).toEqual([]);
  expect(sortsOf(CREATED, false)).toEqual(['-created_at', 'created_at']);
  const sorts = sortsOf(NAME, true);
  expect(nextSort(sorts, '')).toBe('name');
  expect(nextSort(sorts, 'name')).toBe('-name');
  expect(nextSort(sorts, '-name')).toBe('');
  expect(nextSort(sorts, 'size')).toBe('name');
});

test('rows are ordered by a number, missing ones last, equal ones as they were', () => {
  const rows = fc
    .array(fc.option(fc.integer({ min: 0, max: 5 })))
    .map((sizes) => sizes.map((size, id): Row => ({ id, size, name: '' })));
  fc.assert(
    fc.property(rows, fc.constantFrom('disk_size', '-disk_size'), (given, sort) => {
      const before = [...given];
      const sorted = sortRows(given, COLUMNS, sort);
      expect(given).toEqual(before);
      // The oracle takes the smallest (or largest) row that is left, again and again.
      const left = [...given];
      const expected: Row[] = [];
      while (left.length > 0) {
        const sizes = left.flatMap(({ size }) => (size === null ? [] : [size]));
        const wanted =
          sizes.length === 0 ? null : sort === 'disk_size' ? Math.min(...sizes) : Math.max(...sizes);
        const [taken] = left.splice(
          left.findIndex(({ size }) => size === wanted),
          1,
        );
        expected.push(taken!);
      }
      expect(sorted).toEqual(expected);
    }),
  );
});

test('texts with numbers are in the order of people, and orders of the service change nothing here', () => {
  const rows = ['box-10', 'box-9', 'Alpha'].map((name, id): Row => ({ id, size: null, name }));
  const names = (sort: string) => sortRows(rows, COLUMNS, sort).map(({ name }) => name);
  expect(names('name')).toEqual(['Alpha', 'box-9', 'box-10']);
  expect(names('-name')).toEqual(['box-10', 'box-9', 'Alpha']);
  expect(names('-created_at')).toEqual(['box-10', 'box-9', 'Alpha']);
  expect(names('unknown')).toEqual(['box-10', 'box-9', 'Alpha']);
});
