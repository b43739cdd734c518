import { signal } from '@preact/signals';

/** The answer of `/console/session`, which is no operation of openapi.json. */
export interface Session {
  csrf_token: string;
  expires_at: string;
  key: {
    id: string;
    name: string;
    prefix: string;
    scopes: string[];
    labels: Record<string, string>;
    expires_at: string | null;
    organization: { id: string; name: string; slug: string };
  };
}

/** `undefined`: not asked yet. `null`: nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);

export const csrfToken = () => session.value?.csrf_token;

export function signedOut(): void {
  session.value = null;
}
