import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { SandboxResponse, SandboxStatus, SandboxStopReason } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { Lazy } from '../lib/lazy';
import { liveness, useLive, useWhileChanging } from '../lib/live';
import { useUrlState, type UrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { commandInWords } from '../sandbox/words';
import { BulkActions } from './bulk-actions';
import { Filters } from './filters';
import { sortOf } from './sort';

const PAGE_SIZE = 50;
const CHANGING: ReadonlySet<string> = new Set(['starting', 'stopping']);
const loadCreate = () => import('./create').then((module) => module.Create);

/** The filters are those of the API, under its names. */
function queryOf(url: UrlState) {
  const optional = (name: string) => url.get(name) || undefined;
  const statuses = url.all('status') as SandboxStatus[];
  const reasons = url.all('stop_reason') as SandboxStopReason[];
  return {
    status: statuses.length === 0 ? undefined : statuses,
    labels: optional('labels'),
    stop_reason: reasons.length === 0 ? undefined : reasons,
    name_prefix: optional('name_prefix'),
    created_after: optional('created_after'),
    created_before: optional('created_before'),
    cursor: optional('cursor'),
    sort: sortOf(url),
    limit: PAGE_SIZE,
  };
}

const COLUMNS: readonly Column<SandboxResponse>[] = [
  {
    title: 'Name',
    cell: ({ id, name, spec }) => (
      <>
        <Link href={`/sandboxes/${id}`}>{name}</Link>
        <Tags of={spec?.labels ?? {}} />
      </>
    ),
  },
  {
    title: 'Status',
    cell: ({ status, status_reason, stop_reason, stop_message, last_failure_message, command }) => (
      <>
        <Badge status={status} />
        {status === 'starting' && status_reason != null && (
          <small>{last_failure_message ?? status_reason.replaceAll('_', ' ')}</small>
        )}
        {status === 'running' && <small>{commandInWords(command)}</small>}
        {status === 'stopped' && stop_reason != null && (
          <small title={stop_message ?? ''}>{stop_reason.replaceAll('_', ' ')}</small>
        )}
        {status === 'failed' && <small>{last_failure_message}</small>}
      </>
    ),
  },
  { title: 'Image', cell: ({ spec }) => <code>{spec?.image}</code>, isMinor: true },
  { title: 'vCPUs', cell: ({ spec }) => spec?.resources.vcpus, isNumber: true, isMinor: true },
  {
    title: 'Memory',
    cell: ({ spec }) => spec && `${spec.resources.memory_mib} MiB`,
    isNumber: true,
    isMinor: true,
  },
  { title: 'Started', cell: ({ started_at }) => <Time at={started_at} relative />, isMinor: true },
  { title: 'Created', cell: ({ created_at }) => <Time at={created_at} /> },
];

export function Sandboxes() {
  const url = useUrlState();
  const query = queryOf(url);
  const list = useResource(`sandboxes:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/sandboxes', { query, signal }),
  );
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  useLive('sandbox', list.reload);
  useWhileChanging(list.data?.data.some(({ status }) => CHANGING.has(status)) ?? false, list.reload);
  const rows = list.data?.data ?? [];
  const chosen = rows.filter(({ id }) => selected.has(id));
  const isFiltered = Object.entries(query).some(
    ([name, value]) => value !== undefined && !['sort', 'limit'].includes(name),
  );

  return (
    <Page
      title="Sandboxes"
      actions={
        <>
          <small>
            {liveness.value === 'live' ? '● live' : liveness.value === 'polling' ? 'every 3 s' : ''}
          </small>
          <button type="button" class="primary" onClick={() => url.set({ create: 'form' })}>
            Create
          </button>
        </>
      }
    >
      <Filters />
      <BulkActions
        chosen={chosen}
        done={() => {
          setSelected(new Set());
          list.reload();
        }}
      />
      <Loaded resource={list}>
        {({ data, has_more, next_cursor }) =>
          data.length > 0 ? (
            <>
              <Table
                caption="Sandboxes"
                columns={COLUMNS}
                rows={data}
                id={({ id }) => id}
                name={({ name }) => name}
                selection={{ selected, change: setSelected }}
              />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          ) : isFiltered ? (
            <Empty title="No sandbox matches">
              <button
                type="button"
                onClick={() =>
                  url.set({
                    status: [],
                    stop_reason: [],
                    labels: '',
                    name_prefix: '',
                    created_after: '',
                    created_before: '',
                  })
                }
              >
                Remove the filters
              </button>
            </Empty>
          ) : (
            <Empty
              title="No sandbox yet"
              line={`curl ${API_URL}/v1/sandboxes?start=true -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"name":"first","image":{"type":"oci","reference":"python:3.12"}}'`}
            >
              <p>Create one here, or with a key in the variable KEY:</p>
            </Empty>
          )
        }
      </Loaded>
      {url.get('create') !== '' && <Lazy load={loadCreate} />}
    </Page>
  );
}
