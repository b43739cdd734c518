import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { SnapshotOperation, SnapshotResponse } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { bytes } from '../lib/bytes';
import { useLive, useWhileChanging } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { Empty } from '../parts/empty';
import { LabelsFilter } from '../parts/labels-filter';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';

const COLUMNS: readonly Column<SnapshotResponse>[] = [
  { title: 'Name', cell: ({ id, name }) => <Link href={`/snapshots/${id}`}>{name}</Link>, isWide: true },
  { title: 'Status', cell: ({ status }) => <Badge status={status} /> },
  { title: 'Size', cell: ({ size_bytes }) => bytes(size_bytes), isNumber: true },
  { title: 'Sandbox', cell: ({ manifest }) => manifest.source_sandbox ?? 'imported', isMinor: true },
  { title: 'Labels', cell: ({ labels }) => <Tags of={labels} folded />, isMinor: true },
  { title: 'Created', cell: ({ created_at }) => <Time at={created_at} />, isMinor: true },
];

const OPERATIONS: readonly Column<SnapshotOperation>[] = [
  { title: 'Name', cell: ({ name }) => name },
  { title: 'Status', cell: ({ status }) => <Badge status={status.replace('_', ' ')} /> },
  { title: 'Reason', cell: ({ error }) => error?.message ?? '', isWide: true },
  { title: 'Requested', cell: ({ created_at }) => <Time at={created_at} />, isMinor: true },
];

export function Snapshots() {
  const url = useUrlState();
  const include = url.get('include') === 'deleted' ? ('deleted' as const) : undefined;
  const labels = url.get('labels') || undefined;
  const cursor = url.get('cursor') || undefined;
  const list = useResource(`snapshots:${include}:${labels}:${cursor}`, (signal) =>
    call('GET /v1/snapshots', { query: { include, labels, cursor }, signal }),
  );
  const operations = useResource('snapshot-operations', (signal) =>
    call('GET /v1/snapshot-operations', { query: { limit: 20 }, signal }),
  );
  const reload = () => {
    list.reload();
    operations.reload();
  };
  useLive('snapshot', reload);
  const unfinished = (operations.data?.data ?? []).filter(({ status }) => status !== 'succeeded');
  useWhileChanging(
    unfinished.some(({ status }) => status !== 'failed'),
    reload,
  );
  const isFiltered = labels !== undefined || include !== undefined || cursor !== undefined;
  return (
    <Page
      title="Snapshots"
      actions={
        <>
          <TableView of="Snapshots" columns={COLUMNS} />
          <button
            type="button"
            aria-pressed={include !== undefined}
            onClick={() => url.set({ include: include === undefined ? 'deleted' : undefined })}
          >
            Deleted ones too
          </button>
        </>
      }
    >
      <search>
        <form class="filters" onSubmit={(event) => event.preventDefault()}>
          <LabelsFilter of={url} />
        </form>
      </search>
      <Loaded resource={list}>
        {({ data, next_cursor, has_more }) =>
          data.length === 0 && !isFiltered ? (
            <Empty
              title="No snapshot yet"
              text="A snapshot is the disk of a sandbox at one moment, and other sandboxes start from it."
              create={{
                scope: 'sandboxes:write',
                how: 'Make one on the page of a sandbox, or with a key in the variable KEY:',
                line: LINE,
              }}
            />
          ) : (
            <>
              <Table
                caption="Snapshots"
                columns={COLUMNS}
                rows={data}
                id={({ id }) => id}
                name={({ name }) => name}
              />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
      {unfinished.length > 0 && (
        <section class="part">
          <h2>In progress, and failed</h2>
          <Table
            caption="Operations"
            columns={OPERATIONS}
            rows={unfinished}
            id={({ id }) => id}
            name={({ name }) => name}
          />
        </section>
      )}
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/snapshots -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"kind":"disk","sandbox_id":"…","name":"prepared"}'`;
