import { domainToASCII } from 'node:url';
import { defaultFor, rulesFor } from './order.js';
import type { NetworkPolicy, Rule } from './schema.js';

/** A name as rules and packets compare it: ASCII, lower case, without the dot at the end. Undefined: it is no name. */
export function canonicalName(text: string): string | undefined {
  const bare = text.endsWith('.') ? text.slice(0, -1) : text;
  // Names of services have underscores, which the parser of URLs refuses in some versions.
  const name = /^[\x21-\x7e]+$/.test(bare) ? bare.toLowerCase() : domainToASCII(bare);
  const labels = name.split('.');
  const isName =
    name.length <= 253 && labels.every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
  return isName ? name : undefined;
}

export function isWithinDomain(name: string, suffix: string): boolean {
  return name === suffix || name.endsWith(`.${suffix}`);
}

export function isDomainRule({ destination }: Rule): boolean {
  return typeof destination === 'object' && ('domain' in destination || 'domain_suffix' in destination);
}

/** `name` is canonical. */
export function namesDomain({ destination }: Rule, name: string): boolean {
  if (typeof destination === 'string') return false;
  if ('domain' in destination) return canonicalName(destination.domain) === name;
  if (!('domain_suffix' in destination)) return false;
  const suffix = canonicalName(destination.domain_suffix);
  return suffix !== undefined && isWithinDomain(name, suffix);
}

/** Whether connections out depend on names. */
export function hasDomainRules(policy: NetworkPolicy): boolean {
  return rulesFor(policy, 'egress').some(isDomainRule);
}

/**
 * Whether the resolver answers a name: some connection to it can be allowed. A rule by address counts for every name,
 * because the address of the answer decides later.
 */
export function mayResolve(policy: NetworkPolicy, name: string): boolean {
  for (const rule of rulesFor(policy, 'egress')) {
    const isNamed = namesDomain(rule, name);
    if (isDomainRule(rule) && !isNamed) continue;
    if (rule.action === 'allow') {
      if (isNamed || !isOnlyForResolvers(rule)) return true;
      continue;
    }
    const { protocols = [], ports = [] } = rule;
    const isWhole = protocols.length === 0 && ports.length === 0;
    if (isWhole && (isNamed || rule.destination === 'any')) return false;
  }
  return defaultFor(policy, 'egress') === 'allow';
}

/** The rule of the public profile that opens the resolvers opens no destination of a name. */
function isOnlyForResolvers({ destination }: Rule): boolean {
  return typeof destination === 'object' && 'group' in destination && destination.group === 'host';
}
