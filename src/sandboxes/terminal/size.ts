import type { Command } from '../../guest/guest.js';

export const LARGEST = 65_535;
export const DEFAULT_SIZE = { rows: 24, cols: 80 };

/** A part that nobody sees has no rows and columns: such a terminal keeps its size. */
export function resize(command: Command, rows: number, cols: number): void {
  if (rows >= 1 && cols >= 1) command.resize(bounded(rows), bounded(cols));
}

/** Programs cannot draw on zero rows or columns. */
export function initialSize(rows = 0, cols = 0): { rows: number; cols: number } {
  return {
    rows: rows >= 1 ? bounded(rows) : DEFAULT_SIZE.rows,
    cols: cols >= 1 ? bounded(cols) : DEFAULT_SIZE.cols,
  };
}

function bounded(size: number): number {
  return Math.min(Math.floor(size), LARGEST);
}
