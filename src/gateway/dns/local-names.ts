import { isIPv4 } from 'node:net';
import type { Query } from './query.js';
import { RCODES, TYPES } from './question.js';
import type { Reply } from './reply.js';
import { isPublic } from './server-address.js';

export const NAME_ERROR: Reply = { rcode: RCODES.nxDomain };
const LOOPBACK = '127.0.0.1';

/**
 * The names that no name server is asked for: `localhost` (RFC 6761), addresses that were taken for names, and reverse
 * names. A name that looks like an address must never be bound: a rule by domain would open what its owner says.
 * `name` is canonical. Undefined: name servers know the name.
 */
export function localReply(name: string, query: Query, rebindProtection: boolean): Reply | undefined {
  if (name === 'localhost' || name.endsWith('.localhost')) {
    const isAsked = query.type === TYPES.A;
    const record = { type: 'A', name: query.name!, ttl: 3_600, class: 'IN', data: LOOPBACK } as const;
    return { rcode: RCODES.noError, answers: isAsked ? [record] : [] };
  }
  if (/(^|\.)(\d+|0x[0-9a-f]*)$/.test(name)) return NAME_ERROR;
  // Private networks have the names of machines in their reverse zones (RFC 6303).
  const reversed = /^((?:\d{1,3}\.){4})in-addr\.arpa$/.exec(name)?.[1];
  const address = reversed?.split('.').slice(0, 4).toReversed().join('.');
  const isPrivate = address !== undefined && (!isIPv4(address) || !isPublic(address));
  if (rebindProtection && (isPrivate || name.endsWith('.ip6.arpa'))) return NAME_ERROR;
  return undefined;
}

export function isReverseName(name: string): boolean {
  return name.endsWith('.in-addr.arpa') || name.endsWith('.ip6.arpa');
}
