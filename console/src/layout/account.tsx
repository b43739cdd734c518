import { Link } from 'wouter-preact';
import { announce } from '../lib/announce';
import { Problem } from '../lib/api';
import { theme, timeZone } from '../lib/preferences';
import { session } from '../lib/session';
import { signOut } from '../lib/sign-in';
import { Menu } from '../parts/menu';
import { Time } from '../parts/time';
import { Identity, OrganizationChoice } from './identity';

/** The organization and the holder of the session, and the choices of this browser. */
export function Account() {
  const leave = () =>
    signOut().catch((error: unknown) => {
      if (error instanceof Problem) announce(error.message, true);
    });
  return (
    <Menu title={session.value?.organization.name ?? ''} label="Session and appearance" class="account">
      {(close) => (
        <>
          <p>
            <Identity />
            <br />
            until <Time at={session.value?.expires_at} />
          </p>
          {session.value?.member != null && (
            <p>
              <Link href="/account" onClick={close}>
                Account and passkeys
              </Link>
            </p>
          )}
          <OrganizationChoice />
          <label>
            Colours{' '}
            <select
              value={theme.value}
              onChange={({ currentTarget }) => (theme.value = currentTarget.value as typeof theme.value)}
            >
              <option value="system">of the system</option>
              <option value="light">light</option>
              <option value="dark">dark</option>
            </select>
          </label>
          <label>
            Times{' '}
            <select
              value={timeZone.value}
              onChange={({ currentTarget }) =>
                (timeZone.value = currentTarget.value as typeof timeZone.value)
              }
            >
              <option value="local">local</option>
              <option value="utc">UTC</option>
            </select>
          </label>
          <button type="button" onClick={() => void leave()}>
            Sign out
          </button>
        </>
      )}
    </Menu>
  );
}
