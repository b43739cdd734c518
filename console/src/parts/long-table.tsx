import { useMemo, useState } from 'preact/hooks';
import { useUrlState } from '../lib/url-state';
import { Empty } from './empty';
import { Field } from './field';
import { sortRows } from './sorting';
import { Table, type TableProps } from './table';

/** Shown at once: the browser stays quick. */
const STEP = 500;

/** A table of rows that the page has all of. The rows of a long one can be searched by name. */
export function LongTable<T>({ rows: given, ...table }: TableProps<T>) {
  // The order concerns all rows, of which the table has a part.
  const sort = useUrlState().get('sort');
  const rows = useMemo(() => sortRows(given, table.columns, sort), [given, sort]);
  const [limit, setLimit] = useState(STEP);
  const [search, setSearch] = useState('');
  if (rows.length <= STEP) return <Table {...table} rows={rows} isWhole />;
  const found = search === '' ? rows : rows.filter((row) => table.name(row).includes(search));
  const shown = Math.min(limit, found.length);
  return (
    <>
      <Field label="Name contains">
        <input
          type="search"
          value={search}
          onInput={({ currentTarget: { value } }) => {
            setSearch(value);
            setLimit(STEP);
          }}
        />
      </Field>
      <p role="status">
        {shown.toLocaleString('en')} of {found.length.toLocaleString('en')} are shown.
      </p>
      {shown === 0 ? (
        <Empty title="No name contains this" />
      ) : (
        <Table {...table} rows={found.slice(0, shown)} isWhole />
      )}
      {shown < found.length && (
        <button type="button" onClick={() => setLimit(limit + STEP)}>
          Show {Math.min(STEP, found.length - shown)} more
        </button>
      )}
    </>
  );
}
