import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { WebhookResponse, WebhookWithSecret } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { useLive } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { CREATE_HERE, Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { Time } from '../parts/time';
import { EditWebhook } from './edit';
import { WebhookSecret } from './secret';
import { WebhookStatus } from './status';

const COLUMNS: readonly Column<WebhookResponse>[] = [
  {
    title: 'Address',
    cell: ({ id, url, description }) => (
      <>
        <Link href={`/webhooks/${id}`} class="address">
          {url}
        </Link>
        <small>{description}</small>
      </>
    ),
    isWide: true,
  },
  { title: 'Status', cell: (webhook) => <WebhookStatus of={webhook} />, isWide: true },
  {
    title: 'Event types',
    cell: ({ event_types }) => (event_types.length === 0 ? 'all' : event_types.join(', ')),
    isMinor: true,
    isWide: true,
  },
  { title: 'Created', cell: ({ created_at }) => <Time at={created_at} />, isMinor: true },
];

export function Webhooks() {
  const url = useUrlState();
  const [created, setCreated] = useState<WebhookWithSecret>();
  const query = { cursor: url.get('cursor') || undefined, limit: 50 };
  const list = useResource(`webhooks:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/webhooks', { query, signal }),
  );
  useLive('webhook', list.reload);
  const close = () => url.set({ create: undefined, cursor: query.cursor });
  return (
    <Page
      title="Webhooks"
      actions={
        <>
          <TableView of="Webhooks" columns={COLUMNS} />
          <button
            type="button"
            class="primary"
            onClick={() => url.set({ create: 'form', cursor: query.cursor })}
          >
            Create
          </button>
        </>
      }
    >
      <Loaded resource={list}>
        {({ data, has_more, next_cursor }) =>
          data.length === 0 ? (
            <Empty
              title="No webhook yet"
              text="A webhook is sent the audit events of this organization as they happen."
              create={{ scope: 'org:admin', how: CREATE_HERE, line: LINE }}
            />
          ) : (
            <>
              <Table
                caption="Webhooks"
                columns={COLUMNS}
                rows={data}
                id={({ id }) => id}
                name={({ url: address }) => address}
              />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
      {url.get('create') !== '' && (
        <EditWebhook
          close={close}
          save={async (body) => {
            const webhook = await call('POST /v1/webhooks', { body });
            setCreated(webhook);
            close();
            list.reload();
          }}
        />
      )}
      {created !== undefined && <WebhookSecret of={created} close={() => setCreated(undefined)} />}
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/webhooks -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"url":"https://example.com/hooks"}'`;
