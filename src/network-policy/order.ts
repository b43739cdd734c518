import type { Action, Direction, NetworkPolicy, Rule } from './schema.js';

/** The rules for a direction in their order. The first match decides. */
export function rulesFor({ rules = [] }: NetworkPolicy, direction: Direction): Rule[] {
  return rules.filter((rule) => rule.direction === direction || rule.direction === 'any');
}

/** The verdict on traffic that no rule matches. */
export function defaultFor(
  { default_egress = 'deny', default_ingress = 'deny' }: NetworkPolicy,
  direction: Direction,
): Action {
  return direction === 'egress' ? default_egress : default_ingress;
}

/** A policy that can allow nothing. Its sandbox needs no network. */
export function blocksEverything(policy: NetworkPolicy): boolean {
  const { rules = [] } = policy;
  return [
    defaultFor(policy, 'egress'),
    defaultFor(policy, 'ingress'),
    ...rules.map(({ action }) => action),
  ].every((action) => action === 'deny');
}
