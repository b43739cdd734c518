import type { Resource } from '../lib/use-resource';
import { Empty, type EmptyProps } from './empty';
import { Loaded } from './loaded';
import { Pager } from './pager';
import { Table, type Column } from './table';

/** A page of a list with its pager, or the reason why it is empty. */
export function ListPage<T extends { id: string }>({
  resource,
  caption,
  columns,
  name,
  empty,
}: {
  resource: Resource<{ data: readonly T[]; has_more: boolean; next_cursor?: string | null }>;
  caption: string;
  columns: readonly Column<T>[];
  name: (row: T) => string;
  empty: EmptyProps;
}) {
  return (
    <Loaded resource={resource}>
      {({ data, has_more, next_cursor }) =>
        data.length === 0 ? (
          <Empty {...empty} />
        ) : (
          <>
            <Table caption={caption} columns={columns} rows={data} id={({ id }) => id} name={name} />
            <Pager next={next_cursor} hasMore={has_more} />
          </>
        )
      }
    </Loaded>
  );
}
