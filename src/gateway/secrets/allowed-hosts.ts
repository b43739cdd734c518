import { canonicalName, isWithinDomain } from '../../network-policy/domains.js';
import type { GatedSecret, HostPattern } from '../protocol.js';

/** The server to which a request goes. */
export interface Recipient {
  /** Canonical. */
  name: string;
  /** TLS, with a certificate that was verified for the name. */
  isVerified: boolean;
  /** The sandbox got this address as an answer for the name. Without either, the guest itself chose the server. */
  isResolved: boolean;
}

/**
 * `allowed`: it may have the value. `passthrough`: it gets the placeholder as it is. `unverified`: it would be allowed,
 * but nobody knows that it is the server of that name.
 */
export type Standing = 'allowed' | 'passthrough' | 'unverified' | 'foreign';

export function matchesHost({ type, value = '' }: HostPattern, name: string): boolean {
  if (type === 'any') return true;
  if (type === 'exact') return canonicalName(value) === name;
  const suffix = canonicalName(value.replace(/^\*\./, ''));
  return suffix !== undefined && isWithinDomain(name, suffix);
}

export function standingOf(secret: GatedSecret, { name, isVerified, isResolved }: Recipient): Standing {
  const matches = (patterns: readonly HostPattern[]) =>
    patterns.some((pattern) => matchesHost(pattern, name));
  if (matches(secret.allowedHosts))
    return isVerified || (isResolved && !secret.requireTlsIdentity) ? 'allowed' : 'unverified';
  return matches(secret.passthroughHosts) ? 'passthrough' : 'foreign';
}
