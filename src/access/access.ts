import type { Instant } from '../lib/instant.js';
import type { Scope } from './scopes.js';

/** What a key opens. */
export interface Access {
  scopes: readonly Scope[];
  /** Only sandboxes that have all of these. Of a key that is narrowed to none: empty. */
  labels: Readonly<Record<string, string>>;
  /** Only from these networks; from everywhere when empty. */
  cidrs: readonly string[];
  /** Only until then; null is for ever. */
  expiresAt: Instant | null;
  /** Asked for with a secret that was replaced and works on for a while. */
  replaced: boolean;
}

/** Everything in the organization, as the first key has it. */
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
