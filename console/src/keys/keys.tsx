import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { ApiKeyResponse } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { API_URL } from '../lib/base';
import { useLive } from '../lib/live';
import { may, session } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { confirm } from '../parts/confirm';
import { Countdown } from '../parts/countdown';
import { CREATE_HERE } from '../parts/empty';
import { ListPage } from '../parts/list-page';
import { Page } from '../parts/page';
import type { Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { Create } from './create';
import './keys.css';
import { NewSecret, type Issued } from './new-secret';
import { Rotate } from './rotate';

const PAGE_SIZE = 50;

export function Keys() {
  const url = useUrlState();
  const [issued, setIssued] = useState<Issued>();
  const [rotated, setRotated] = useState<ApiKeyResponse>();
  const query = { cursor: url.get('cursor') || undefined, limit: PAGE_SIZE };
  const list = useResource(`keys:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/keys', { query, signal }),
  );
  useLive('api_key', list.reload);
  const stay = { cursor: query.cursor };
  const finish = (next: Issued) => {
    setIssued(next);
    setRotated(undefined);
    url.set({ create: undefined, ...stay }, { replace: true });
    list.reload();
  };
  const revoke = async ({ id, name, prefix }: ApiKeyResponse) => {
    const isOwn = id === session.value?.key?.id;
    const isConfirmed = await confirm({
      title: 'Revoke this key?',
      names: [`${name} (${prefix}…)`],
      consequence: isOwn
        ? 'You are signed in with this key. It is refused at once, and so is this session. This cannot be undone.'
        : 'It is refused at once, wherever it is used. This cannot be undone.',
      action: 'Revoke',
    });
    if (!isConfirmed) return;
    await attempt(() => call('DELETE /v1/keys/{id}', { path: { id } }), `Revoked ${name}.`);
    list.reload();
  };

  const columns: readonly Column<ApiKeyResponse>[] = [
    {
      title: 'Name',
      cell: ({ id, name }) => (
        <span title={name}>
          {name} {id === session.value?.key?.id && <span class="badge">this session</span>}
        </span>
      ),
      isWide: true,
    },
    { title: 'Key', cell: ({ prefix }) => <code>{prefix}…</code>, isMinor: true },
    { title: 'Status', cell: (key) => <Status of={key} ended={list.reload} /> },
    { title: 'Labels', cell: ({ labels }) => <Tags of={labels} folded />, isMinor: true, isWide: true },
    {
      title: 'Scopes',
      cell: ({ scopes }) => <code title={scopes.join(', ')}>{scopes.join(', ')}</code>,
      isMinor: true,
      isWide: true,
    },
    {
      title: 'Networks',
      cell: ({ cidrs }) => (cidrs.length === 0 ? 'all' : cidrs.join(', ')),
      isMinor: true,
      isExtra: true,
    },
    { title: 'Last use', cell: ({ last_used_at }) => <LastUse at={last_used_at} />, isMinor: true },
    {
      title: 'Created',
      cell: ({ created_at }) => <Time at={created_at} relative />,
      isMinor: true,
      isExtra: true,
    },
    {
      title: 'Actions',
      cell: (key) =>
        key.revoked_at === null &&
        may('keys:write') && (
          <span class="actions">
            <button type="button" aria-label={`Rotate ${key.name}`} onClick={() => setRotated(key)}>
              Rotate
            </button>
            <button
              type="button"
              class="danger"
              aria-label={`Revoke ${key.name}`}
              onClick={() => void revoke(key)}
            >
              Revoke
            </button>
          </span>
        ),
    },
  ];

  return (
    <Page
      title="Keys"
      actions={
        <>
          <TableView of="Keys" columns={columns} />
          {may('keys:write') && (
            <button type="button" class="primary" onClick={() => url.set({ create: 'form', ...stay })}>
              Create
            </button>
          )}
        </>
      }
    >
      <ListPage
        resource={list}
        caption="Keys"
        columns={columns}
        name={({ name }) => name}
        empty={{
          title: 'No key on this page',
          create: { scope: 'keys:write', how: CREATE_HERE, line: LINE },
        }}
      />
      {url.get('create') !== '' && may('keys:write') && (
        <Create close={() => url.set({ create: undefined, ...stay })} created={finish} />
      )}
      {rotated !== undefined && <Rotate of={rotated} close={() => setRotated(undefined)} rotated={finish} />}
      {issued !== undefined && <NewSecret issued={issued} close={() => setIssued(undefined)} />}
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/keys -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"name":"ci","scopes":["sandboxes:write"]}'`;

function LastUse({ at }: { at: string | null }) {
  return at === null ? <>never</> : <Time at={at} relative />;
}

function Status({ of, ended }: { of: ApiKeyResponse; ended: () => void }) {
  const { revoked_at, expires_at, previous_secret_until } = of;
  if (revoked_at !== null) {
    return (
      <>
        <Badge status="revoked" />
        <small>
          <Time at={revoked_at} relative />
        </small>
      </>
    );
  }
  const isExpired = expires_at !== null && Date.parse(expires_at) <= Date.now();
  return (
    <>
      <Badge status={isExpired ? 'expired' : 'active'} />
      {expires_at !== null && (
        <small>
          {isExpired ? 'ended' : 'ends'} <Time at={expires_at} relative />
        </small>
      )}
      {previous_secret_until !== null && (
        <small>
          The previous secret works for <Countdown until={previous_secret_until} ended={ended} />.
        </small>
      )}
    </>
  );
}
