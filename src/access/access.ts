import type { Instant } from '../lib/instant.js';
import type { Scope } from './scopes.js';

/** A list filters by as many labels at once: those of the caller and those of the request. */
export const MOST_ACCESS_LABELS = 8;

export interface Access {
  scopes: readonly Scope[];
  /** The key applies only to sandboxes with all of these labels. Empty: to everything. */
  labels: Readonly<Record<string, string>>;
  /** The networks from which the key is accepted. Empty: from everywhere. */
  cidrs: readonly string[];
  /** Null: never. */
  expiresAt: Instant | null;
  /** Whether the request used a replaced secret, which stays valid for a while. */
  replaced: boolean;
}

export const FULL_ACCESS: Access = {
  scopes: ['org:admin'],
  labels: {},
  cidrs: [],
  expiresAt: null,
  replaced: false,
};

export function isNarrowed({ labels }: Pick<Access, 'labels'>): boolean {
  return Object.keys(labels).length > 0;
}
