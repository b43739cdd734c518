import { ErrorPanel } from '../parts/error-panel';
import { Table } from '../parts/table';
import { COLUMNS } from './columns';
import { NEWEST_FIRST } from './filter';
import { MOST_ROWS, type useWholeList } from './whole-list';

interface WholeTableProps {
  list: ReturnType<typeof useWholeList>;
  selection: { selected: ReadonlySet<string>; change: (selected: ReadonlySet<string>) => void } | undefined;
}

/** All rows of the list in one table. Each head orders them when all are there. */
export function WholeTable({ list, selection }: WholeTableProps) {
  const { rows, isComplete, hasMore, problem, reload } = list;
  const count = rows.length.toLocaleString('en');
  return (
    <>
      {problem !== undefined && <ErrorPanel problem={problem} retry={reload} />}
      <small role="status">
        {!isComplete
          ? `${count} so far…`
          : hasMore
            ? `The first ${MOST_ROWS.toLocaleString('en')} are shown. A filter leaves fewer.`
            : `${count} sandboxes`}
      </small>
      <Table
        caption="Sandboxes"
        columns={COLUMNS}
        rows={rows}
        id={({ id }) => id}
        name={({ name }) => name}
        selection={selection}
        isWhole={isComplete}
        sortedBy={NEWEST_FIRST}
      />
    </>
  );
}
