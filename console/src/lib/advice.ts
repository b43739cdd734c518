import type { Problem } from './api';

const BY_CODE: ReadonlyMap<string, string> = new Map(
  Object.entries({
    idempotency_conflict: 'Send the request again from the beginning.',
    invalid_passkey: 'Try again. Without your passkey, ask the operator for a link.',
    last_passkey: 'Add another one first.',
    no_passkey: 'Try again, or use another device.',
    passkey_refused: 'Try again, or use another device.',
    passkeys_unavailable: 'The operator decides about it.',
    recent_sign_in_required: 'Sign out, and sign in again.',
  }),
);

/** The next step after a refusal. The message itself is the service's. */
export function adviceFor({ status, retryAfter, code }: Problem): string {
  const wait = retryAfter === null ? 'a moment' : `${retryAfter} s`;
  const known = BY_CODE.get(code);
  if (known !== undefined) return known;
  if (status === 0) return 'Check the network and the service. The page continues when it answers again.';
  if (status === 401) return 'Sign in with an API key that is valid.';
  if (status === 403) return 'Sign in with a key that has the scope and the labels for this.';
  if (status === 404) return 'Check the address. The object may have been deleted since.';
  if (status === 409) return 'Look at the current state, then try again.';
  if (status === 429) return `Wait ${wait}, then try again.`;
  if (status === 501) return 'This runtime cannot do it. Use a sandbox of another runtime.';
  if (status >= 500) return `Wait ${wait}, then try again. If it stays, give the operator the request id.`;
  return 'Correct the input, then try again.';
}

/** A message of the service with the signs of a sentence. A name of a field such as `name_prefix` stays as it is. */
export function sentence(message: string): string {
  const isName = /^\w+_\w/.test(message);
  const text = isName ? message : message.slice(0, 1).toUpperCase() + message.slice(1);
  return /[.!?:]$/.test(text) ? text : `${text}.`;
}
