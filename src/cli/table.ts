import Table from 'cli-table3';
import stringWidth from 'string-width';
import { escapeControls } from '../lib/escape-controls.js';
import { fitTable, type Grid } from './table-fit.js';

export interface TableOptions {
  /** Prints every column in full on any terminal. */
  wide?: true;
  /** Headings of the columns that a narrow terminal omits, the least important first. */
  optional?: readonly string[];
}

const GAP = '   ';

/**
 * Rows under headings, without lines, so that other tools can cut them. Only a terminal shortens lines, to its width.
 */
export function table(head: string[], rows: string[][], options: TableOptions = {}): string {
  const whole = { head, rows: rows.map((row) => row.map(escapeControls)) };
  const columns = options.wide || !process.stdout.isTTY ? 0 : process.stdout.columns;
  if (!columns) return render(whole);
  const { shortened, widths, ...fitted } = fitTable(whole, {
    columns,
    optional: options.optional ?? [],
    gap: GAP.length,
    widthOf: stringWidth,
  });
  return shortened ? `${render(fitted, widths)}\n\n${hint(columns)}` : render(fitted);
}

function hint(columns: number): string {
  const text = 'Shortened to fit the terminal; --wide shows everything.';
  return text.length > columns ? '--wide'.slice(0, columns) : text;
}

function render({ head, rows }: Grid, widths?: readonly number[]): string {
  const chars = { top: '', 'top-mid': '', 'top-left': '', 'top-right': '', bottom: '', 'bottom-mid': '' };
  const none = { 'bottom-left': '', 'bottom-right': '', left: '', 'left-mid': '', mid: '', 'mid-mid': '' };
  const style = { head: [], border: [], 'padding-left': 0, 'padding-right': 0 };
  const view = new Table({
    head: [...head],
    style,
    colAligns: head.map((_, column) => (isNumeric(rows, column) ? 'right' : 'left')),
    chars: { ...chars, ...none, right: '', 'right-mid': '', middle: GAP },
    ...(widths ? { colWidths: [...widths] } : {}),
  });
  view.push(...rows.map((row) => [...row]));
  return view
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n');
}

function isNumeric(rows: Grid['rows'], column: number): boolean {
  const cells = rows.flatMap((row) => row[column] || []);
  return cells.length > 0 && cells.every((cell) => /^-?[\d.,]+$/.test(cell));
}
