import type { Caller } from './caller.js';

/** A key that is narrowed to labels sees what has all of them. Empty: everything of the organization. */
export interface Reader {
  orgId: string;
  labels: Readonly<Record<string, string>>;
}

export function readerOf({ orgId, access }: Pick<Caller, 'orgId' | 'access'>): Reader {
  return { orgId, labels: access.labels };
}
