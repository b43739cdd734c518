import { isUuid } from '../lib/uuid.js';

export interface Grid {
  head: readonly string[];
  rows: readonly (readonly string[])[];
}

export interface Fit {
  columns: number;
  /** Headings of columns that may be left out, the least important first. */
  optional: readonly string[];
  gap: number;
  /** The number of cells that a text takes on a terminal. */
  widthOf: (text: string) => number;
}

export interface Fitted extends Grid {
  /** The width of each column; longer cells are cut off. */
  widths: number[];
  shortened: boolean;
}

const FRACTION = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z/g;

/**
 * Narrows a table to the terminal by as few steps as possible: times to the second, short ids, no optional columns, cut
 * cells.
 */
export function fitTable(whole: Grid, fit: Fit): Fitted {
  const widthsOf = ({ head, rows }: Grid) =>
    head.map((name, column) =>
      rows.reduce((most, row) => Math.max(most, fit.widthOf(row[column] ?? '')), fit.widthOf(name)),
    );
  const fits = (widths: readonly number[]) => totalOf(widths, fit.gap) <= fit.columns;
  let grid = whole;
  for (const shorten of shortenings(fit.optional)) {
    const widths = widthsOf(grid);
    if (fits(widths)) return { ...grid, widths, shortened: grid !== whole };
    grid = shorten(grid);
  }
  // Each column keeps one cell; the last columns go where even those do not fit.
  while (
    totalOf(
      grid.head.map(() => 1),
      fit.gap,
    ) > fit.columns
  )
    grid = withoutColumn(grid, grid.head.length - 1);
  const widths = widthsOf(grid);
  while (!fits(widths)) widths[widths.indexOf(Math.max(...widths))]! -= 1;
  return { ...grid, widths, shortened: true };
}

function* shortenings(optional: readonly string[]): Generator<(grid: Grid) => Grid> {
  yield (grid) => mapCells(grid, (cell) => cell.replace(FRACTION, '$1Z'));
  // The beginning of an id is its time: only the end differs between ids of the same minute.
  yield (grid) => mapCells(grid, (cell) => (isUuid(cell) ? `…${cell.slice(-8)}` : cell));
  for (const heading of optional) yield (grid) => withoutColumn(grid, grid.head.indexOf(heading));
  yield (grid) => grid;
}

function totalOf(widths: readonly number[], gap: number): number {
  return widths.reduce((sum, width) => sum + width, 0) + gap * Math.max(0, widths.length - 1);
}

function mapCells({ head, rows }: Grid, change: (cell: string) => string): Grid {
  return { head, rows: rows.map((row) => row.map(change)) };
}

function withoutColumn({ head, rows }: Grid, column: number): Grid {
  const drop = (cells: readonly string[]) => cells.filter((_, index) => index !== column);
  return { head: drop(head), rows: rows.map(drop) };
}
