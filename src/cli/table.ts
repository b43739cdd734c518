import Table from 'cli-table3';

/** Rows under headings, without lines: easy to read, and to cut up with other tools. Columns of numbers stand to the right. */
export function table(head: string[], rows: string[][]): string {
  const chars = { top: '', 'top-mid': '', 'top-left': '', 'top-right': '', bottom: '', 'bottom-mid': '' };
  const none = { 'bottom-left': '', 'bottom-right': '', left: '', 'left-mid': '', mid: '', 'mid-mid': '' };
  const style = { head: [], border: [], 'padding-left': 0, 'padding-right': 0 };
  const view = new Table({
    head,
    style,
    colAligns: head.map((_, column) => (isNumeric(rows, column) ? 'right' : 'left')),
    chars: { ...chars, ...none, right: '', 'right-mid': '', middle: '   ' },
  });
  view.push(...rows.map((row) => row.map(printable)));
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

function isNumeric(rows: string[][], column: number): boolean {
  const cells = rows.flatMap((row) => row[column] || []);
  return cells.length > 0 && cells.every((cell) => /^-?[\d.,]+$/.test(cell));
}
