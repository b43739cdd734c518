import { useMemo, useState } from 'preact/hooks';
import { useUrlState } from '../lib/url-state';
import { Empty } from './empty';
import { Field } from './field';
import { sortRows } from './sorting';
import { Table, type TableProps } from './table';

/** Fewer rows are seen at a glance. */
const SEARCHED = 100;

/** A table of rows that the page has all of. The rows of a long one can be searched by name. */
export function LongTable<T>({ rows: given, ...table }: TableProps<T>) {
  const sort = useUrlState().get('sort') || (table.sortedBy ?? '');
  const rows = useMemo(() => sortRows(given, table.columns, sort), [given, sort]);
  const [search, setSearch] = useState('');
  if (rows.length <= SEARCHED) return <Table {...table} rows={rows} isWhole />;
  const part = search.toLowerCase();
  const found = part === '' ? rows : rows.filter((row) => table.name(row).toLowerCase().includes(part));
  return (
    <>
      <div class="filters">
        <Field label="Name contains">
          <input type="search" value={search} onInput={({ currentTarget: { value } }) => setSearch(value)} />
        </Field>
        <small role="status">
          {found.length.toLocaleString('en')} of {rows.length.toLocaleString('en')}
        </small>
      </div>
      {found.length === 0 ? (
        <Empty title="No name contains this" />
      ) : (
        <Table {...table} rows={found} isWhole isSorted />
      )}
    </>
  );
}
