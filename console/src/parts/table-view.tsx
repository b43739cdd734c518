import { isShown, showColumn } from '../lib/chosen-columns';
import { density } from '../lib/preferences';
import { Menu } from './menu';
import type { Column } from './table';

/** The density of all tables, and the columns of one. The first column has the name, and stays. */
export function TableView<T>({ of, columns }: { of: string; columns: readonly Column<T>[] }) {
  return (
    <Menu title="View" label={`View of ${of}`}>
      {() => (
        <>
          <fieldset class="choices">
            <legend>Rows</legend>
            {(['comfortable', 'compact'] as const).map((name) => (
              <button
                key={name}
                type="button"
                aria-pressed={density.value === name}
                onClick={() => (density.value = name)}
              >
                {name}
              </button>
            ))}
          </fieldset>
          <fieldset class="checks">
            <legend>Columns</legend>
            {columns.slice(1).map((column) => (
              <label key={column.title}>
                <input
                  type="checkbox"
                  checked={isShown(of, column)}
                  onChange={({ currentTarget }) => showColumn(of, column, currentTarget.checked)}
                />
                {column.title}
              </label>
            ))}
          </fieldset>
        </>
      )}
    </Menu>
  );
}
