import Table from 'cli-table3';
import stringWidth from 'string-width';
import { fitTable, type Grid } from './table-fit.js';

export interface TableOptions {
  /** Prints everything, however wide the terminal is. */
  wide?: true;
  /** Headings of columns that a narrow terminal is not shown, the least important first. */
  optional?: readonly string[];
}

const GAP = '   ';

/**
 * Rows under headings, without lines: easy to read, and to cut up with other tools. Columns of numbers stand to the right. On a
 * terminal no line is wider than it; elsewhere nothing is shortened.
 */
export function table(head: string[], rows: string[][], options: TableOptions = {}): string {
  const whole = { head, rows: rows.map((row) => row.map(printable)) };
  const columns = options.wide || !process.stdout.isTTY ? 0 : process.stdout.columns;
  if (!columns) return render(whole);
  const { shortened, widths, ...fitted } = fitTable(whole, {
    columns,
    ...{ optional: options.optional ?? [], gap: GAP.length, widthOf: stringWidth },
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
    ...{ head: [...head], style },
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

/** People choose names: none may move the cursor, colour what follows or begin a line of its own. */
function printable(cell: string): string {
  // Control characters are what is looked for.
  // oxlint-disable-next-line no-control-regex
  return cell.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, (character) => {
    const code = character.codePointAt(0)!.toString(16);
    return `\\u${code.padStart(4, '0')}`;
  });
}

function isNumeric(rows: Grid['rows'], column: number): boolean {
  const cells = rows.flatMap((row) => row[column] || []);
  return cells.length > 0 && cells.every((cell) => /^-?[\d.,]+$/.test(cell));
}
