import { request } from './api';
import { session, type Session } from './session';

const ADDRESS = '/console/session';

export async function resumeSession(): Promise<void> {
  session.value = (await (await request(ADDRESS)).json()) as Session;
}

/** The key leaves the browser's memory with this request. The cookie that answers it is out of reach of scripts. */
export async function signIn(key: string): Promise<void> {
  await openSession(ADDRESS, { key });
}

/** The token of a link opens one session. */
export async function signInByLink(link: string): Promise<void> {
  await openSession(`${ADDRESS}/link`, { link });
}

/** Replaces the session by one of another organization of the person. */
export async function switchOrganization(id: string): Promise<void> {
  await openSession(`${ADDRESS}/organization`, { organization_id: id });
}

interface SignInOptions {
  /** The provider that people sign in with. Null: there is none. */
  provider: { name: string } | null;
  /** Whether passkeys work at this address. */
  passkeys: boolean;
}

export async function signInOptions(signal: AbortSignal): Promise<SignInOptions> {
  const answer = await request('/console/sign-in/options', { signal });
  return (await answer.json()) as SignInOptions;
}

async function openSession(address: string, body: object): Promise<void> {
  const answer = await request(address, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  session.value = (await answer.json()) as Session;
}

/** A session by the provider ends there too. */
export async function signOut(): Promise<void> {
  const answer = await request(ADDRESS, { method: 'DELETE' });
  const at = answer.status === 200 ? ((await answer.json()) as { logout_url: string }).logout_url : undefined;
  session.value = null;
  if (at !== undefined) location.assign(at);
}
