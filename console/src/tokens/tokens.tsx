import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { PersonalTokenResponse, PersonalTokenWithSecret } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { API_URL } from '../lib/base';
import { useLive } from '../lib/live';
import { session } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { ListPage } from '../parts/list-page';
import { Page } from '../parts/page';
import { SecretDialog } from '../parts/secret';
import type { Column } from '../parts/table';
import { Time } from '../parts/time';
import { CreateToken } from './create';

/** The personal tokens of the member, and those of every member for an administrator. */
export function Tokens() {
  const url = useUrlState();
  const [isCreating, setCreating] = useState(false);
  const [issued, setIssued] = useState<PersonalTokenWithSecret>();
  const query = { cursor: url.get('cursor') || undefined, limit: 50 };
  const list = useResource(`tokens:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/tokens', { query, signal }),
  );
  useLive('api_key', list.reload);
  const isMember = session.value?.member != null;

  const revoke = async ({ id, name, prefix }: PersonalTokenResponse) => {
    const isConfirmed = await confirm({
      title: 'Revoke this token?',
      names: [`${name} (${prefix}…)`],
      consequence: 'It is refused at once, wherever it is used. This cannot be undone.',
      action: 'Revoke',
    });
    if (!isConfirmed) return;
    await attempt(() => call('DELETE /v1/tokens/{token_id}', { path: { token_id: id } }), `Revoked ${name}.`);
    list.reload();
  };

  const columns: readonly Column<PersonalTokenResponse>[] = [
    { title: 'Name', cell: ({ name }) => <span title={name}>{name}</span>, isWide: true },
    { title: 'Token', cell: ({ prefix }) => <code>{prefix}…</code>, isMinor: true },
    { title: 'Member', cell: ({ email }) => email, isMinor: true },
    {
      title: 'Last use',
      cell: ({ last_used_at }) => (last_used_at === null ? 'never' : <Time at={last_used_at} relative />),
      isMinor: true,
    },
    { title: 'Ends', cell: ({ expires_at }) => <Time at={expires_at} /> },
    {
      title: 'Actions',
      cell: (token) => (
        <button
          type="button"
          class="danger"
          aria-label={`Revoke ${token.name}`}
          onClick={() => void revoke(token)}
        >
          Revoke
        </button>
      ),
    },
  ];

  return (
    <Page
      title="Personal tokens"
      actions={
        isMember && (
          <button type="button" class="primary" onClick={() => setCreating(true)}>
            Create
          </button>
        )
      }
    >
      <p>A token acts as its member, and opens no more than the member may at the moment.</p>
      <ListPage
        resource={list}
        caption="Personal tokens"
        columns={columns}
        name={({ name }) => name}
        empty={{
          title: 'No token',
          text: `${isMember ? 'Create one here' : 'Members create them in their own sessions'}, or with:`,
          line: `sandkeep login --url ${API_URL}`,
        }}
      />
      {isCreating && (
        <CreateToken
          close={() => setCreating(false)}
          created={(token) => {
            setCreating(false);
            setIssued(token);
            list.reload();
          }}
        />
      )}
      {issued !== undefined && (
        <SecretDialog
          title={`The token ${issued.name}`}
          of="token"
          secret={issued.token}
          close={() => setIssued(undefined)}
        />
      )}
    </Page>
  );
}
