import { signal } from '@preact/signals';
import type { ApiKeyResponse } from './api-types';

export interface Session {
  csrf_token: string;
  expires_at: string;
  key: ApiKeyResponse;
}

/** `undefined`: not asked yet. `null`: nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);

export const csrfToken = () => session.value?.csrf_token;

export function signedOut(): void {
  session.value = null;
}
