import { isSubnetOfAny } from '../lib/cidr.js';
import { GROUPS } from '../lib/special-addresses.js';
import type { Rule } from './schema.js';
import { isOnlyDns } from './traffic.js';

/**
 * Traffic to these groups may act with the rights of the machine, so an operator has to open them. DNS is always open.
 */
export const GUARDED_GROUPS = ['host', 'metadata'] as const;
export type GuardedGroup = (typeof GUARDED_GROUPS)[number];

const METADATA = [...GROUPS.metadata.v4, ...GROUPS.metadata.v6];
const PRIVATE = [...GROUPS.private.v4, ...GROUPS.private.v6];

/**
 * The guarded group that a rule is to open, and the key of its destination that says so. A rule for addresses that the
 * operator blocks has no effect. A rule for more addresses, such as `any`, affects the others.
 */
export function guardedGroupOf(rule: Rule): { group: GuardedGroup; key: 'cidr' | 'group' } | undefined {
  const { direction, destination, action } = rule;
  if (action !== 'allow' || direction === 'ingress' || typeof destination === 'string' || isOnlyDns(rule))
    return undefined;
  if ('cidr' in destination)
    return isSubnetOfAny(destination.cidr, METADATA) ? { group: 'metadata', key: 'cidr' } : undefined;
  if (!('group' in destination)) return undefined;
  const group = GUARDED_GROUPS.find((guarded) => guarded === destination.group);
  return group && { group, key: 'group' };
}

/** Whether a rule opens addresses that may be those of the machine's own network, or of a cluster. */
export function opensPrivate({ action, destination }: Rule): boolean {
  if (action !== 'allow' || typeof destination === 'string') return false;
  if ('cidr' in destination) return isSubnetOfAny(destination.cidr, PRIVATE);
  return 'group' in destination && destination.group === 'private';
}
