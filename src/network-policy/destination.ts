import { GROUPS, SPECIAL } from '../lib/special-addresses.js';
import type { Rule } from './schema.js';

type Destination = Rule['destination'];
type Group = Extract<Destination, { group: unknown }>['group'];

/** Sets of addresses that are the same on every machine. */
export const ADDRESS_SETS = { special: SPECIAL, ...GROUPS };
export type AddressSetName = keyof typeof ADDRESS_SETS;

/**
 * A destination by addresses. Each address counts for one group: first for `host`, which only an engine knows, then for
 * `metadata`, then for the range that contains it. So "allow private" does not open a metadata service in a private
 * range.
 */
export type Target =
  | { kind: 'any' }
  | { kind: 'block'; cidr: string }
  /** The machine or the cluster that executes the sandbox. Its resolvers count for it, for DNS only. */
  | { kind: 'host' }
  /** The addresses of `within`, or all addresses, except those of `without`. */
  | { kind: 'set'; within?: AddressSetName; without?: AddressSetName };

export function targetOf(destination: Destination): Target {
  if (destination === 'any') return { kind: 'any' };
  if ('cidr' in destination) return { kind: 'block', cidr: destination.cidr };
  if ('group' in destination) return targetOfGroup(destination.group);
  throw new Error('a rule by domain must not get past admission');
}

function targetOfGroup(group: Group): Target {
  if (group === 'host') return { kind: 'host' };
  if (group === 'public') return { kind: 'set', without: 'special' };
  if (group === 'metadata') return { kind: 'set', within: 'metadata' };
  return { kind: 'set', within: group, without: 'metadata' };
}
