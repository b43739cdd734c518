import { RESERVED_PATH } from '../types.js';

/** The page that takes the token of a link. No server in a sandbox can answer for it, also when a cookie is there. */
export const OPEN_PATH = `${RESERVED_PATH}open`;
export const GRANT_PATH = `${RESERVED_PATH}grant`;
export const NOTICE_PATH = `${RESERVED_PATH}notice`;
export const FRAGMENT = 'sandkeep-grant';

const ANY_ORIGIN = 'http://preview.invalid';
const CONTROLS = /[\u0000-\u0020\u007f]/;

/** Whether it is a path of the same origin: `//host/` and `/\host` lead to another one. */
export function isSamePath(path: string): boolean {
  if (!path.startsWith('/') || CONTROLS.test(path) || !path.isWellFormed()) return false;
  return URL.canParse(path, ANY_ORIGIN) && new URL(path, ANY_ORIGIN).origin === ANY_ORIGIN;
}

/**
 * The link for browsers. Browsers do not send a fragment, so no log and no `Referer` has the token. `token`: null for a
 * public preview.
 */
export function linkOf(origin: string, path: string, token: string | null): string {
  if (token === null) return origin + path;
  const to = path === '/' ? '' : `?to=${encodeURIComponent(path)}`;
  return `${origin}${OPEN_PATH}${to}#${FRAGMENT}=${token}`;
}
