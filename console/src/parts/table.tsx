import type { ComponentChildren } from 'preact';
import { useMemo, useRef } from 'preact/hooks';
import { isShown } from '../lib/chosen-columns';
import { useUrlState } from '../lib/url-state';
import { useRowWindow } from './row-window';
import { nextSort, sortRows, sortsOf, type Sortable } from './sorting';
import { useSteadyWidths } from './steady-widths';

export interface Column<T> extends Sortable<T> {
  cell: (row: T) => ComponentChildren;
  /** Left out on narrow screens. */
  isMinor?: boolean;
  /** Takes the width that the others leave. Longer text is cut; its tooltip has it. */
  isWide?: boolean;
  /** Shown only when it is chosen. */
  isExtra?: boolean;
}

interface Selection {
  selected: ReadonlySet<string>;
  change: (selected: ReadonlySet<string>) => void;
}

export interface TableProps<T> {
  /** Also the name under which the browser keeps the chosen columns. */
  caption: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  id: (row: T) => string;
  name: (row: T) => string;
  selection?: Selection | undefined;
  /** The rows are all there are, so that they can be ordered here. */
  isWhole?: boolean;
  /** The value of `sort` that the rows have without one in the address. */
  sortedBy?: string;
  /** The rows are in the order of the address. */
  isSorted?: boolean;
}

export function Table<T>(props: TableProps<T>) {
  const { caption, columns, id, name, selection, isWhole = false, sortedBy = '' } = props;
  const sort = useUrlState().get('sort') || sortedBy;
  const rows = useMemo(
    () => (isWhole && props.isSorted !== true ? sortRows(props.rows, columns, sort) : props.rows),
    [props.rows, props.isSorted, isWhole, columns, sort],
  );
  const shown = columns.filter((column) => isShown(caption, column));
  const head = useRef<HTMLTableRowElement>(null);
  const body = useRef<HTMLTableSectionElement>(null);
  const near = useRowWindow(rows.length, body);
  const { from, to, above, below } = near ?? { from: 0, to: rows.length, above: 0, below: 0 };
  useSteadyWidths(head, near !== undefined, `${caption} ${shown.map(({ title }) => title).join()}`);
  const toggle = (row: string, { selected, change }: Selection) => {
    const next = new Set(selected);
    if (!next.delete(row)) next.add(row);
    change(next);
  };
  const width = shown.length + (selection === undefined ? 0 : 1);
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={caption}>
      <table aria-rowcount={near === undefined ? undefined : rows.length + 1}>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr ref={head}>
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
            {shown.map((column, place) => (
              <Head key={place} column={column} sorts={sortsOf(column, isWhole)} sort={sort} />
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {above > 0 && <Gap key="above" height={above} width={width} />}
          {rows.slice(from, to).map((row, place) => (
            <tr
              key={id(row)}
              class={selection?.selected.has(id(row)) ? 'selected' : ''}
              aria-rowindex={near === undefined ? undefined : from + place + 2}
            >
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
              <Cells row={row} columns={columns} caption={caption} />
            </tr>
          ))}
          {below > 0 && <Gap key="below" height={below} width={width} />}
        </tbody>
      </table>
    </div>
  );
}

/** Stands for rows that are not drawn. */
function Gap({ height, width }: { height: number; width: number }) {
  return (
    <tr class="gap" aria-hidden="true">
      <td colSpan={width} style={{ height }} />
    </tr>
  );
}

interface CellsProps<T> {
  row: T;
  columns: readonly Column<T>[];
  caption: string;
}

/**
 * The cells of a row. They read the signal of the chosen columns. @preact/signals draws such a component again only
 * after a change of a property or of a signal. So a scroll or a selection draws no other row again.
 */
function Cells<T>({ row, columns, caption }: CellsProps<T>) {
  return (
    <>
      {columns
        .filter((column) => isShown(caption, column))
        .map((column) => (
          <Cell key={column.title} column={column} row={row} />
        ))}
    </>
  );
}

function Cell<T>({ column, row }: { column: Column<T>; row: T }) {
  const content = column.cell(row);
  const title = column.isWide === true && typeof content === 'string' ? content : undefined;
  return (
    <td class={classOf(column)} title={title}>
      {content}
    </td>
  );
}

function classOf<T>({ isNumber, isMinor, isWide }: Column<T>): string {
  return [isNumber && 'number', isMinor && 'minor', isWide && 'wide'].filter(Boolean).join(' ');
}

interface HeadProps<T> {
  column: Column<T>;
  sorts: readonly string[];
  sort: string;
}

/** The head of a column. A click orders the rows by it, the next click turns the order around. */
function Head<T>({ column, sorts, sort }: HeadProps<T>) {
  const url = useUrlState();
  if (sorts.length === 0) {
    return (
      <th scope="col" class={classOf(column)}>
        {column.title}
      </th>
    );
  }
  const order = !sorts.includes(sort) ? 'none' : sort.startsWith('-') ? 'descending' : 'ascending';
  return (
    <th scope="col" class={classOf(column)} aria-sort={order}>
      <button type="button" class="sort" onClick={() => url.set({ sort: nextSort(sorts, sort) })}>
        {column.title}
        <span class="sort-sign" aria-hidden="true">
          {{ none: '↕', ascending: '↑', descending: '↓' }[order]}
        </span>
      </button>
    </th>
  );
}
