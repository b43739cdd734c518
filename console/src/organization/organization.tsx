import { call } from '../lib/api';
import type { OrgMemberResponse } from '../lib/api-types';
import { useLive } from '../lib/live';
import { session } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Copy } from '../parts/copy';
import { Empty } from '../parts/empty';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import { Quotas } from './quotas';

export function Organization() {
  const org = useResource('org', (signal) => call('GET /v1/me/org', { signal }));
  return (
    <Page title="Organization">
      <Loaded resource={org}>
        {({ id, name, slug, runtime, created_at }) => (
          <Facts
            of={[
              ['Name', name],
              ['Slug', <code>{slug}</code>],
              [
                'Id',
                <>
                  <code>{id}</code> <Copy text={id} of="id" />
                </>,
              ],
              ['Runtime', runtime],
              ['Created', <Time at={created_at} />],
            ]}
          />
        )}
      </Loaded>
      <section class="part">
        <h2>Quotas</h2>
        <Quotas />
      </section>
      <section class="part">
        <h2>This session</h2>
        <OwnSession />
      </section>
      <section class="part">
        <h2>Members</h2>
        <Members />
      </section>
    </Page>
  );
}

function OwnSession() {
  const signedIn = session.value;
  if (signedIn == null) return null;
  const { key, member, scopes, labels } = signedIn;
  const only = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  return (
    <Facts
      of={[
        ...(key
          ? ([
              ['Key', key.name],
              ['Begins with', <code>{key.prefix}…</code>],
              ['The key expires', key.expires_at === null ? 'never' : <Time at={key.expires_at} />],
            ] as const)
          : ([
              ['Member', member?.email],
              ['Role', member?.role],
            ] as const)),
        ['Scopes', <code>{scopes.join(' ')}</code>],
        ['Only sandboxes with', only.length === 0 ? 'any labels' : only.join(', ')],
        ['The session ends', <Time at={signedIn.expires_at} />],
      ]}
    />
  );
}

const COLUMNS: readonly Column<OrgMemberResponse>[] = [
  { title: 'Email', cell: ({ email }) => email, isWide: true },
  { title: 'Name', cell: ({ display_name }) => display_name ?? '–', isMinor: true, isWide: true },
  { title: 'Role', cell: ({ role }) => <span class="badge">{role}</span> },
  { title: 'Member since', cell: ({ joined_at }) => <Time at={joined_at} />, isMinor: true },
];

function Members() {
  const url = useUrlState();
  const query = { cursor: url.get('cursor') || undefined, limit: 50 };
  const list = useResource(`members:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/members', { query, signal }),
  );
  useLive('member', list.reload);
  return (
    <Loaded resource={list}>
      {({ data, has_more, next_cursor }) =>
        data.length === 0 ? (
          <Empty title="No member" line="sandkeep member add --help">
            <p>The operator adds members on the machine of the service, and makes their first link:</p>
          </Empty>
        ) : (
          <>
            <Table
              caption="Members"
              columns={COLUMNS}
              rows={data}
              id={({ id }) => id}
              name={({ email }) => email}
            />
            <Pager next={next_cursor} hasMore={has_more} />
          </>
        )
      }
    </Loaded>
  );
}
