import { Link, useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { PoolResponse } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { useLive } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { CREATE_HERE, Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { PutPool } from './put';

const COLUMNS: readonly Column<PoolResponse>[] = [
  { title: 'Name', cell: ({ name }) => <Link href={`/pools/${name}`}>{name}</Link>, isWide: true },
  { title: 'Image', cell: ({ image }) => <code title={image}>{image.split('/').at(-1)}</code>, isWide: true },
  { title: 'Ready', cell: ({ ready, size }) => `${ready} of ${size}` },
  { title: 'Given', cell: ({ given, most }) => (most === null ? given : `${given}, at most ${most} run`) },
  {
    title: 'Problem',
    cell: ({ last_failure_message: problem }) => problem ?? 'none',
    isMinor: true,
    isWide: true,
  },
];

export function Pools() {
  const url = useUrlState();
  const [, go] = useLocation();
  const cursor = url.get('cursor') || undefined;
  const list = useResource(`pools:${cursor}`, (signal) =>
    call('GET /v1/pools', { query: { cursor }, signal }),
  );
  useLive('pool', list.reload);
  useLive('sandbox', list.reload);
  return (
    <Page
      title="Pools"
      actions={
        <>
          <TableView of="Pools" columns={COLUMNS} />
          {may('sandboxes:write') && (
            <button type="button" class="primary" onClick={() => url.set({ create: 'form' })}>
              Create
            </button>
          )}
        </>
      }
    >
      <Loaded resource={list}>
        {({ data, next_cursor, has_more }) =>
          data.length === 0 && cursor === undefined ? (
            <Empty
              title="No pool yet"
              text="A pool keeps started sandboxes ready, and creates take them. They are billed while they wait."
              create={{ scope: 'sandboxes:write', how: CREATE_HERE, line: LINE }}
            />
          ) : (
            <>
              <Table
                caption="Pools"
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
      {url.get('create') !== '' && may('sandboxes:write') && (
        <PutPool
          close={() => url.set({ create: undefined })}
          saved={({ name }) => {
            announce(`Created ${name}.`);
            go(`/pools/${name}`);
          }}
        />
      )}
    </Page>
  );
}

const LINE = `curl -X PUT ${API_URL}/v1/pools/python -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"image":{"type":"oci","reference":"python:3.12"},"size":2}'`;
