import type { TestService } from './service.js';

export const BROWSER = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };

export interface ConsoleSession {
  url: string;
  cookie: string;
  csrf: string;
  expiresAt: string;
  /** A request with the cookie, and with the token where one is needed. */
  fetch(
    path: string,
    init?: { method?: string; headers?: Record<string, string>; body?: string; signal?: AbortSignal },
  ): Promise<Response>;
}

export async function postKey(
  url: string,
  key: unknown,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${url}/console/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ key }),
  });
}

/** Signs in to the console as a browser does. */
export async function signIn({ url }: Pick<TestService, 'url'>, key: string): Promise<ConsoleSession> {
  const answer = await postKey(url, key);
  const text = await answer.text();
  if (answer.status !== 201) throw new Error(`the sign-in was answered ${answer.status}: ${text}`);
  const body = JSON.parse(text) as { csrf_token: string; expires_at: string };
  const [cookie] = answer.headers.getSetCookie()[0]!.split(';');
  return sessionAt(url, { cookie: cookie!, csrf: body.csrf_token, expiresAt: body.expires_at });
}

/** The same session at another process. */
export function sessionAt(url: string, session: Omit<ConsoleSession, 'url' | 'fetch'>): ConsoleSession {
  return {
    ...session,
    url,
    fetch: (path, { method = 'GET', headers = {}, ...init } = {}) =>
      fetch(url + path, {
        ...init,
        method,
        headers: {
          cookie: session.cookie,
          ...(method === 'GET' ? {} : { 'x-csrf-token': session.csrf }),
          ...(init.body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
      }),
  };
}
