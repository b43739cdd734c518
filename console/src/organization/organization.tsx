import { call } from '../lib/api';
import { session } from '../lib/session';
import { useResource } from '../lib/use-resource';
import { Copy } from '../parts/copy';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
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
