import { useState } from 'preact/hooks';
import { useLocation, useSearch } from 'wouter-preact';
import { request } from '../lib/api';
import { session } from '../lib/session';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { ErrorPanel } from '../parts/error-panel';
import { Facts } from '../parts/facts';
import { Field } from '../parts/field';
import { Page } from '../parts/page';
import { Time } from '../parts/time';

interface Waiting {
  user_code: string;
  client: string;
  network: string;
  created_at: string;
}

const addressOf = (code: string) => `/console/device/codes/${encodeURIComponent(code)}`;

/** Lets `sandkeep login` on another device in, by the code that it shows. */
export function Device() {
  const given = new URLSearchParams(useSearch()).get('code') ?? '';
  const [, go] = useLocation();
  const [waiting, setWaiting] = useState<Waiting>();
  const [answered, setAnswered] = useState<'allowed' | 'refused'>();
  const { send, problem, isBusy } = useChange();
  const member = session.value?.member;

  const find = async (event: SubmitEvent) => {
    const code = submitted(event)('code').trim();
    const found = await send(async () => (await (await request(addressOf(code))).json()) as Waiting);
    if (found !== undefined) setWaiting(found);
  };
  const answer = async (allow: boolean) => {
    if (waiting === undefined) return;
    const isDone = await send(async () => {
      await request(addressOf(waiting.user_code), {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ allow }),
      });
      return true;
    });
    if (isDone) setAnswered(allow ? 'allowed' : 'refused');
  };

  if (member == null) {
    return (
      <Page title="Sign a device in">
        <p>Only a member can do this: sign out, and sign in as yourself.</p>
      </Page>
    );
  }
  if (answered !== undefined) {
    return (
      <Page title="Sign a device in">
        <p role="status">
          {answered === 'allowed'
            ? 'The device is signed in. You can close this page, and revoke its token on the page of tokens.'
            : 'The device was refused.'}
        </p>
        <p>
          <button type="button" onClick={() => go('/tokens')}>
            Personal tokens
          </button>
        </p>
      </Page>
    );
  }
  return (
    <Page title="Sign a device in">
      {waiting === undefined ? (
        <form class="form" onSubmit={(event) => void find(event)}>
          <Field label="Code" hint="The device shows it.">
            <input
              name="code"
              value={given}
              required
              autofocus
              autocomplete="off"
              spellcheck={false}
              placeholder="BCDF-GHJK"
            />
          </Field>
          <p class="actions">
            <button type="submit" class="primary" disabled={isBusy}>
              Continue
            </button>
          </p>
        </form>
      ) : (
        <>
          <p>
            Allow it only if you began this sign-in yourself, and the device shows the same code. It then acts
            as {member.email} in {session.value?.organization.name} for 30 days.
          </p>
          <Facts
            of={[
              ['Code', <code key="code">{waiting.user_code}</code>],
              ['Device', waiting.client],
              ['Network', <code key="network">{waiting.network}</code>],
              ['Began', <Time key="began" at={waiting.created_at} relative />],
            ]}
          />
          <p class="actions">
            <button type="button" class="primary" disabled={isBusy} onClick={() => void answer(true)}>
              Allow
            </button>
            <button type="button" class="danger" disabled={isBusy} onClick={() => void answer(false)}>
              Refuse
            </button>
          </p>
        </>
      )}
      {problem !== undefined && <ErrorPanel problem={problem} />}
    </Page>
  );
}
