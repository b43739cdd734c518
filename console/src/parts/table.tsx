import type { ComponentChildren } from 'preact';

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers are on the right. */
  isNumber?: boolean;
  /** Left out on narrow screens. */
  isMinor?: boolean;
}

interface Selection {
  selected: ReadonlySet<string>;
  change: (selected: ReadonlySet<string>) => void;
}

export interface TableProps<T> {
  caption: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  id: (row: T) => string;
  name: (row: T) => string;
  selection?: Selection;
}

export function Table<T>({ caption, columns, rows, id, name, selection }: TableProps<T>) {
  const classOf = ({ isNumber, isMinor }: Column<T>) =>
    `${isNumber ? 'number' : ''} ${isMinor ? 'minor' : ''}`;
  const toggle = (row: string, { selected, change }: Selection) => {
    const next = new Set(selected);
    if (!next.delete(row)) next.add(row);
    change(next);
  };
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {selection !== undefined && (
              <th scope="col" class="tick">
                <input
                  type="checkbox"
                  aria-label="Select all of this page"
                  checked={rows.length > 0 && rows.every((row) => selection.selected.has(id(row)))}
                  onChange={({ currentTarget: { checked } }) =>
                    selection.change(new Set(checked ? rows.map(id) : []))
                  }
                />
              </th>
            )}
            {columns.map((column, place) => (
              <th key={place} scope="col" class={classOf(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)} class={selection?.selected.has(id(row)) ? 'selected' : ''}>
              {selection !== undefined && (
                <td class="tick">
                  <input
                    type="checkbox"
                    aria-label={`Select ${name(row)}`}
                    checked={selection.selected.has(id(row))}
                    onChange={() => toggle(id(row), selection)}
                  />
                </td>
              )}
              {columns.map((column, place) => (
                <td key={place} class={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
