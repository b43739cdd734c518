import { signal } from '@preact/signals';
import { covers, type Scope } from '../../../src/access/scopes';

interface Organization {
  id: string;
  name: string;
  slug: string;
}

/** The answer of `/console/session`, which is no operation of openapi.json. */
export interface Session {
  csrf_token: string;
  expires_at: string;
  organization: Organization;
  /** Those that the session can switch to, with this one. */
  organizations: Organization[];
  scopes: Scope[];
  /** The labels that the session is limited to. Empty: none. */
  labels: Record<string, string>;
  /** Null in the session of a member. */
  key: { id: string; name: string; prefix: string; expires_at: string | null } | null;
  /** Null in the session of a key. */
  member: { id: string; email: string; display_name: string | null; role: string } | null;
}

/** `undefined`: not asked yet. `null`: nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);

/** Whether the session has the scope. A page leaves out the parts that its session may not use. */
export function may(scope: Scope): boolean {
  return covers(session.value?.scopes ?? [], scope);
}

/** Only owners add, change and remove owners. No key is one. */
export function isOwner(): boolean {
  return session.value?.member?.role === 'owner';
}

export const csrfToken = () => session.value?.csrf_token;

export function signedOut(): void {
  session.value = null;
}
