import { domainToASCII } from 'node:url';
import { defaultFor, rulesFor } from './order.js';
import type { Action, NetworkPolicy, Rule } from './schema.js';

/** A name as rules and packets compare it: ASCII, lower case, without the dot at the end. Undefined: it is no name. */
export function canonicalName(text: string): string | undefined {
  // Names of services have underscores, which the parser of URLs refuses in some versions.
  const ascii = /^[\x21-\x7e]+$/.test(text) ? text.toLowerCase() : domainToASCII(text);
  // After the conversion, which turns the full stops of other scripts into dots.
  const name = ascii.endsWith('.') ? ascii.slice(0, -1) : ascii;
  const labels = name.split('.');
  const isName =
    name.length <= 253 && labels.every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
  return isName ? name : undefined;
}

export function isWithinDomain(name: string, suffix: string): boolean {
  if (!name.endsWith(suffix)) return false;
  return name.length === suffix.length || name[name.length - suffix.length - 1] === '.';
}

export function isDomainRule({ destination }: Rule): boolean {
  return typeof destination === 'object' && ('domain' in destination || 'domain_suffix' in destination);
}

/** Rules never change, and each query and connection compares them. */
const canonicalDomains = new WeakMap<Rule, string>();

/** Empty, which is no name: the domain of the rule is none. */
function domainOf(rule: Rule, text: string): string {
  const known = canonicalDomains.get(rule);
  if (known !== undefined) return known;
  const domain = canonicalName(text) ?? '';
  canonicalDomains.set(rule, domain);
  return domain;
}

/** `name` is canonical. */
export function namesDomain(rule: Rule, name: string): boolean {
  const { destination } = rule;
  if (typeof destination === 'string') return false;
  if ('domain' in destination) return domainOf(rule, destination.domain) === name;
  if (!('domain_suffix' in destination)) return false;
  const suffix = domainOf(rule, destination.domain_suffix);
  return suffix !== '' && isWithinDomain(name, suffix);
}

/** Whether connections out depend on names. */
export function hasDomainRules(policy: NetworkPolicy): boolean {
  return rulesFor(policy, 'egress').some(isDomainRule);
}

/** `rule`: the position in the policy. */
export interface NameVerdict {
  action: Action;
  rule: number | 'default';
}

/**
 * Whether the resolver answers a name: some connection to it can be allowed. A rule by address counts for every name,
 * because the address of the answer decides later. `name` is canonical.
 */
export function decideName(policy: NetworkPolicy, name: string): NameVerdict {
  for (const [position, rule] of (policy.rules ?? []).entries()) {
    if (rule.direction === 'ingress') continue;
    const isNamed = namesDomain(rule, name);
    if (isDomainRule(rule) && !isNamed) continue;
    if (rule.action === 'allow') {
      if (isNamed || !isOnlyForResolvers(rule)) return { action: 'allow', rule: position };
      continue;
    }
    if (isWhole(rule) && (isNamed || rule.destination === 'any')) return { action: 'deny', rule: position };
  }
  return { action: defaultFor(policy, 'egress'), rule: 'default' };
}

/** Whether a rule by domain is the one that denies the name. A name that no rule knows is not denied so. */
export function isDeniedByDomain(policy: NetworkPolicy, name: string): boolean {
  const { action, rule } = decideName(policy, name);
  return action === 'deny' && rule !== 'default' && isDomainRule(policy.rules![rule]!);
}

/** Whether the addresses of a name matter to a rule by domain. */
export function isNamedByRule(policy: NetworkPolicy, name: string): boolean {
  return rulesFor(policy, 'egress').some((rule) => namesDomain(rule, name));
}

function isWhole({ protocols = [], ports = [] }: Rule): boolean {
  return protocols.length === 0 && ports.length === 0;
}

/** The rule of the public profile that opens the resolvers opens no destination of a name. */
function isOnlyForResolvers({ destination }: Rule): boolean {
  return typeof destination === 'object' && 'group' in destination && destination.group === 'host';
}
