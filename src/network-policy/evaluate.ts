import { CidrSet } from '../lib/cidr.js';
import { GROUPS } from '../lib/special-addresses.js';
import { ADDRESS_SETS, targetOf, type AddressSetName } from './destination.js';
import { canonicalName, isDomainRule, isWithinDomain } from './domains.js';
import type { GuardedGroup } from './guarded-groups.js';
import { defaultFor, rulesFor } from './order.js';
import type { Action, NetworkPolicy, Rule } from './schema.js';
import { DNS_PORT, matches, type Carrier } from './traffic.js';

/** The addresses that only the machine of a sandbox knows. */
export interface Surroundings {
  /** The group `host`. */
  hosts: readonly string[];
  /** They belong to the group `host` for port 53 only. */
  resolvers: readonly string[];
  /** CIDR blocks of other sandboxes, which no policy opens. */
  neighbours: readonly string[];
  openableGroups: readonly GuardedGroup[];
}

/** The first packet of a connection out of a sandbox. */
export interface Attempt {
  carrier: Carrier;
  address: string;
  port: number;
  /** The canonical names by which rules by domain know the address. */
  names: readonly string[];
  /** Names that only rules that deny know it by: a connection claims them, or may be for them. Default: none. */
  claims?: readonly string[];
}

/** `rule`: the position in the policy. `guard`: closed by the operator or by the machine, before every rule. */
export interface Verdict {
  action: Action;
  rule: number | 'default' | 'guard';
}

const SETS = new Map<AddressSetName, CidrSet>(
  (Object.keys(ADDRESS_SETS) as AddressSetName[]).map((name) => [
    name,
    new CidrSet([...ADDRESS_SETS[name].v4, ...ADDRESS_SETS[name].v6]),
  ]),
);

interface CompiledRule {
  rule: Rule;
  position: number;
  block: CidrSet | undefined;
  /** Canonical. A text that is no name matches none. */
  domain: { name: string; isSuffix: boolean } | undefined;
}

function domainOf({ destination }: Rule): CompiledRule['domain'] {
  if (typeof destination === 'string') return undefined;
  const text =
    'domain' in destination
      ? destination.domain
      : 'domain_suffix' in destination
        ? destination.domain_suffix
        : undefined;
  if (text === undefined) return undefined;
  return { name: canonicalName(text) ?? 'no name', isSuffix: 'domain_suffix' in destination };
}

/** Decides connections as the rules of the kernel do, and those by domain too. */
export class Evaluator {
  private readonly hosts: ReadonlySet<string>;
  private readonly resolvers: ReadonlySet<string>;
  private readonly neighbours: CidrSet;
  private readonly rules: readonly CompiledRule[];

  constructor(
    private readonly policy: NetworkPolicy,
    private readonly surroundings: Surroundings,
  ) {
    this.hosts = new Set(surroundings.hosts);
    this.resolvers = new Set(surroundings.resolvers);
    // All sandboxes of a machine share their link, where addresses are made up.
    this.neighbours = new CidrSet([...surroundings.neighbours, ...GROUPS.link_local.v6]);
    const positions = new Map((policy.rules ?? []).map((rule, position) => [rule, position]));
    this.rules = rulesFor(policy, 'egress').map((rule) => {
      const target = isDomainRule(rule) ? undefined : targetOf(rule.destination);
      const block = target?.kind === 'block' ? new CidrSet([target.cidr]) : undefined;
      return { rule, position: positions.get(rule)!, block, domain: domainOf(rule) };
    });
  }

  decide(attempt: Attempt): Verdict {
    if (this.isGuarded(attempt)) return { action: 'deny', rule: 'guard' };
    const ports = { start: attempt.port, end: attempt.port };
    for (const compiled of this.rules) {
      const { rule, position } = compiled;
      if (!matches(rule, attempt.carrier, ports) || !this.includes(compiled, attempt)) continue;
      return { action: rule.action, rule: position };
    }
    return { action: defaultFor(this.policy, 'egress'), rule: 'default' };
  }

  private isGuarded({ address, port }: Attempt): boolean {
    if (this.hosts.has(address))
      return port !== DNS_PORT && !this.surroundings.openableGroups.includes('host');
    if (this.neighbours.includes(address)) return true;
    if (this.resolvers.has(address) && port === DNS_PORT) return false;
    return SETS.get('metadata')!.includes(address) && !this.surroundings.openableGroups.includes('metadata');
  }

  private includes({ rule, block, domain }: CompiledRule, attempt: Attempt): boolean {
    const { address, port, names, claims = [] } = attempt;
    if (domain) {
      const isAbout = (name: string) =>
        domain.isSuffix ? isWithinDomain(name, domain.name) : name === domain.name;
      return names.some(isAbout) || (rule.action === 'deny' && claims.some(isAbout));
    }
    const target = targetOf(rule.destination);
    const isHost = this.hosts.has(address) || (this.resolvers.has(address) && port === DNS_PORT);
    switch (target.kind) {
      case 'any':
        return true;
      case 'block':
        return block!.includes(address);
      case 'host':
        return isHost;
      case 'set': {
        // A rule for public addresses is about public resolvers too, as in the rules of the kernel.
        if (target.within === undefined ? this.hosts.has(address) : isHost) return false;
        const isWithin = target.within === undefined || SETS.get(target.within)!.includes(address);
        return isWithin && !(target.without !== undefined && SETS.get(target.without)!.includes(address));
      }
    }
  }
}
