import type { Problem } from './api';

/** The next step after a refusal. The message itself is the service's. */
export function adviceFor({ status, retryAfter, code }: Problem): string {
  const wait = retryAfter === null ? 'a moment' : `${retryAfter} s`;
  if (status === 0) return 'Check the network and the service. The page continues when it answers again.';
  if (status === 401) return 'Sign in with an API key that is valid.';
  if (status === 403) return 'Sign in with a key that has the scope and the labels for this.';
  if (status === 404) return 'Check the address. The object may have been deleted since.';
  if (code === 'idempotency_conflict') return 'Send the request again from the beginning.';
  if (status === 409) return 'Look at the current state, then try again.';
  if (status === 429) return `Wait ${wait}, then try again.`;
  if (status === 501) return 'This runtime cannot do it. Use a sandbox of another runtime.';
  if (status >= 500) return `Wait ${wait}, then try again. If it stays, give the operator the request id.`;
  return 'Correct the input, then try again.';
}

/** A message of the service with the signs of a sentence. */
export function sentence(message: string): string {
  const text = message.slice(0, 1).toUpperCase() + message.slice(1);
  return /[.!?:]$/.test(text) ? text : `${text}.`;
}
