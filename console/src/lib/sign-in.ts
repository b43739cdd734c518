import { request } from './api';
import { session, type Session } from './session';

const ADDRESS = '/console/session';

export async function resumeSession(): Promise<void> {
  session.value = (await (await request(ADDRESS)).json()) as Session;
}

/** The key leaves the browser's memory with this request. The cookie that answers it is out of reach of scripts. */
export async function signIn(key: string): Promise<void> {
  const answer = await request(ADDRESS, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ key }),
  });
  session.value = (await answer.json()) as Session;
}

export async function signOut(): Promise<void> {
  await request(ADDRESS, { method: 'DELETE' });
  session.value = null;
}
