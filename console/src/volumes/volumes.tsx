import { Link, useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { VolumeResponse } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { useLive } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { CREATE_HERE, Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Table, type Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { CreateVolume } from './create';
import { nameOf } from './name';
import { Use } from './use';

const COLUMNS: readonly Column<VolumeResponse>[] = [
  {
    title: 'Name',
    cell: (volume) => <Link href={`/volumes/${volume.id}`}>{nameOf(volume)}</Link>,
    isWide: true,
    value: nameOf,
  },
  { title: 'Labels', cell: ({ labels }) => <Tags of={labels} folded />, isMinor: true, isWide: true },
  { title: 'Status', cell: ({ status }) => <Badge status={status} />, value: ({ status }) => status },
  { title: 'Use', cell: (volume) => <Use of={volume} />, value: ({ used_bytes }) => used_bytes },
  {
    title: 'Created',
    cell: ({ created_at }) => <Time at={created_at} />,
    isMinor: true,
    value: ({ created_at }) => created_at,
  },
];

export function Volumes() {
  const url = useUrlState();
  const [, go] = useLocation();
  const include = url.get('include') === 'deleted' ? ('deleted' as const) : undefined;
  const list = useResource(`volumes:${include}`, (signal) =>
    call('GET /v1/volumes', { query: { include }, signal }),
  );
  useLive('volume', list.reload);
  return (
    <Page
      title="Volumes"
      actions={
        <>
          <TableView of="Volumes" columns={COLUMNS} />
          <button
            type="button"
            aria-pressed={include !== undefined}
            onClick={() => url.set({ include: include === undefined ? 'deleted' : undefined })}
          >
            Deleted ones too
          </button>
          {may('volumes:write') && (
            <button type="button" class="primary" onClick={() => url.set({ create: 'form' })}>
              Create
            </button>
          )}
        </>
      }
    >
      <Loaded resource={list}>
        {(volumes) =>
          volumes.length === 0 ? (
            <Empty
              title="No volume yet"
              text="A volume keeps files when sandboxes end."
              create={{ scope: 'volumes:write', how: CREATE_HERE, line: LINE }}
            />
          ) : (
            <Table
              caption="Volumes"
              columns={COLUMNS}
              rows={volumes}
              id={({ id }) => id}
              name={nameOf}
              isWhole
            />
          )
        }
      </Loaded>
      {url.get('create') !== '' && may('volumes:write') && (
        <CreateVolume
          close={() => url.set({ create: undefined })}
          created={({ id, name }) => {
            announce(`Created ${name}.`);
            go(`/volumes/${id}`);
          }}
        />
      )}
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/volumes -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"name":"models","capacity_gib":10}'`;
