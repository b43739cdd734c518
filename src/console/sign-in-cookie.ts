import { createHmac, timingSafeEqual } from 'node:crypto';
import { tokenKind } from '../lib/token.js';
import { INVITATION_TOKEN } from '../members/invite.js';
import type { SignInSecrets } from '../people/provider.js';

/** The longest time of a person at the provider. */
const SIGN_IN_MS = 10 * 60_000;
const LONGEST_PATH = 1_000;
const SECRET = tokenKind('sko_');
const VALUE = new RegExp(
  String.raw`^${SECRET.pattern}\.(\d{13})\.([\w-]{0,2000})\.(|${INVITATION_TOKEN.pattern})$`,
);

/** A sign-in by the provider that a browser has begun. */
export interface BegunSignIn {
  secrets: SignInSecrets;
  /** The path of the console to return to. */
  path: string;
  /** The invitation that the sign-in accepts. */
  invitation: string | undefined;
}

/**
 * The cookie that binds the answer of the provider to the browser that asked. State, nonce and code verifier are
 * derived from it. So the service stores nothing about a begun sign-in, and every process can end it.
 */
export class SignInCookies {
  private readonly name: string;
  private readonly attributes: string;

  constructor(consoleUrl: string) {
    const { protocol, pathname } = new URL(consoleUrl);
    const isSecure = protocol === 'https:';
    const base = pathname.replace(/\/console$/, '');
    const prefix = isSecure ? (base === '' ? '__Host-' : '__Secure-') : '';
    this.name = `${prefix}sandkeep_sign_in`;
    // Lax: the answer of the provider is a navigation from another site.
    this.attributes = `Path=${base === '' ? '/' : base}; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`;
  }

  begin(
    { path, invitation = '' }: { path: string; invitation?: string },
    at: number,
  ): { cookie: string; begun: BegunSignIn } {
    const target = isConsolePath(path) ? path : '/';
    const accepted = INVITATION_TOKEN.isWellFormed(invitation) ? invitation : '';
    const value = `${SECRET.make()}.${at}.${Buffer.from(target).toString('base64url')}.${accepted}`;
    const cookie = `${this.name}=${value}; ${this.attributes}; Max-Age=${SIGN_IN_MS / 1_000}`;
    return { cookie, begun: { secrets: secretsOf(value), path: target, invitation: accepted || undefined } };
  }

  /** Undefined: the request has no cookie of a sign-in that began lately. */
  read(header: string | undefined, at: number): BegunSignIn | undefined {
    const pairs = (header ?? '').split(';').map((pair) => pair.trim());
    const values = pairs.filter((pair) => pair.startsWith(`${this.name}=`));
    const [value] = values.map((pair) => pair.slice(this.name.length + 1));
    const match = value === undefined || values.length > 1 ? null : VALUE.exec(value);
    if (!match) return undefined;
    const [whole, begunAt = '', encoded = '', invitation = ''] = match;
    if (Number(begunAt) + SIGN_IN_MS <= at || Number(begunAt) > at + SIGN_IN_MS) return undefined;
    const path = Buffer.from(encoded, 'base64url').toString();
    return {
      secrets: secretsOf(whole),
      path: isConsolePath(path) ? path : '/',
      invitation: invitation || undefined,
    };
  }

  clear(): string {
    return `${this.name}=; ${this.attributes}; Max-Age=0`;
  }
}

export function isSameState(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** The time and the path are parts of the text, so a changed one has another state. */
function secretsOf(value: string): SignInSecrets {
  const derive = (purpose: string) => createHmac('sha256', value).update(purpose).digest('base64url');
  return { state: derive('state'), nonce: derive('nonce'), verifier: derive('code verifier') };
}

/** A path below `/console`. `//host` would lead elsewhere. */
function isConsolePath(path: string): boolean {
  return /^\/(?![/\\])[\x21-\x7e]*$/.test(path) && path.length <= LONGEST_PATH && !path.includes('\\');
}
