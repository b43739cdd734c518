import { canonicalName } from '../../network-policy/domains.js';
import type { Destination } from './destination.js';
import type { Refusal } from './refusal.js';

/** The host of a Host field, of `:authority` or of a URL, without its port. Undefined: it is none. */
export function hostOf(authority: string): string | undefined {
  const match = /^([^:@/?#[\]]+)(?::\d{0,5})?$/.exec(authority);
  return match ? canonicalName(match[1]!) : undefined;
}

/**
 * Refuses a request for another host than that of its connection. A request of clear HTTP may name each host that the
 * sandbox resolved to this address, and that the policy allows.
 */
export function refuseHost(to: Destination, authority: string | undefined): Refusal | undefined {
  const host = authority === undefined ? undefined : hostOf(authority);
  if (host === to.name || (host !== undefined && mayAlsoReach(to, host))) return undefined;
  const message =
    host === undefined
      ? `the request names no valid host: send one Host field with the name ${to.name}`
      : `the request is for ${host}, but its connection is for ${to.name}: open a connection for each host`;
  return {
    status: host === undefined ? 400 : 403,
    code: 'network_policy_denied',
    message,
    domain: host ?? to.name,
  };
}

function mayAlsoReach({ sandbox, encrypted, address, port }: Destination, host: string): boolean {
  if (encrypted || !sandbox.bindings.namesOf(address).includes(host)) return false;
  const verdict = sandbox.evaluator.decide({ carrier: 'tcp', address, port, names: [host] });
  return verdict.action === 'allow';
}
