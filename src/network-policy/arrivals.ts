import { isDomainRule } from './domains.js';
import { defaultFor, rulesFor } from './order.js';
import type { NetworkPolicy, Rule } from './schema.js';
import { matches, type Carrier } from './traffic.js';

/**
 * Whether a policy can let a connection arrive at a port. `host`: it comes from the machine of the sandbox. A rule for
 * addresses may be about those of the machine, which only an engine knows. So a policy is refused only if it denies for
 * certain.
 */
export function mayArrive(
  policy: NetworkPolicy,
  carrier: Carrier,
  port: number,
  from: 'host' | 'anywhere',
): boolean {
  for (const rule of rulesAbout(policy, carrier, port)) {
    const { destination, action } = rule;
    const isCertain = destination === 'any' || (from === 'host' && isHostGroup(rule));
    if (action === 'allow' ? isCertain || mayBeFrom(rule, from) : isCertain) return action === 'allow';
  }
  return defaultFor(policy, 'ingress') === 'allow';
}

/** Whether the policy lets some sources reach a port and not others. */
export function dependsOnSource(policy: NetworkPolicy, carrier: Carrier, port: number): boolean {
  const about = rulesAbout(policy, carrier, port);
  const first = about[0];
  return first !== undefined && first.destination !== 'any';
}

function rulesAbout(policy: NetworkPolicy, carrier: Carrier, port: number): Rule[] {
  // A connection from outside has no name.
  return rulesFor(policy, 'ingress').filter(
    (rule) => !isDomainRule(rule) && matches(rule, carrier, { start: port, end: port }),
  );
}

function isHostGroup({ destination }: Rule): boolean {
  return typeof destination !== 'string' && 'group' in destination && destination.group === 'host';
}

function mayBeFrom(rule: Rule, from: 'host' | 'anywhere'): boolean {
  const { destination } = rule;
  return from === 'anywhere' || (typeof destination !== 'string' && 'cidr' in destination);
}
