/** The verdicts of a policy with domains, by a walk along its rules that shares nothing with `src`. */
import fc from 'fast-check';
import type { NetworkPolicy, Rule } from '../../../src/network-policy/schema.js';
import { contains } from '../docker-policy-oracle.js';

/** The names of the world and the last numbers of their addresses. Addresses are shared on purpose. */
export const NAMES: Record<string, number> = {
  'a.test': 10,
  'b.test': 10,
  'www.a.test': 11,
  'deep.www.a.test': 12,
  'c.test': 12,
  'nota.test': 13,
};

const DNS_PORT = 53;

export interface Try {
  /** `tls` and `http` show a name, unless there is none. `raw` is another protocol, whose client speaks first. */
  kind: 'tls' | 'http' | 'raw';
  port: number;
  address: string;
  name?: string;
}

/** Whether the name server of the sandbox answers the name: some connection to it could be allowed. */
export function resolves(policy: NetworkPolicy, name: string): boolean {
  const { rules = [], default_egress } = policy;
  if (!hasResolver(policy)) return false;
  for (const rule of rules.filter(leaves)) {
    const domain = domainOf(rule);
    const isAbout = domain === undefined ? undefined : covers(domain, name);
    if (isAbout === false) continue;
    if (rule.action === 'allow') return true;
    const isWhole = !rule.ports?.length && !rule.protocols?.length;
    if (isWhole && (isAbout || rule.destination === 'any')) return false;
  }
  return default_egress === 'allow';
}

/**
 * A sandbox has a name server if a rule allows a name, or if its policy lets it ask one by address. That may be the one
 * of this world, which is public, or the machine, which is not.
 */
function hasResolver(policy: NetworkPolicy): boolean {
  const leaving = (policy.rules ?? []).filter(leaves);
  if (leaving.some((rule) => rule.action === 'allow' && domainOf(rule) !== undefined)) return true;
  return [true, false].some((isPublic) => mayAskByAddress(policy, isPublic));
}

function mayAskByAddress({ rules = [], default_egress }: NetworkPolicy, isPublic: boolean): boolean {
  const hit = rules.filter(leaves).find(({ destination, protocols = [], ports = [] }) => {
    const isGroup =
      isPublic && typeof destination === 'object' && 'group' in destination && destination.group === 'public';
    if ((destination !== 'any' && !isGroup) || (protocols.length > 0 && !protocols.includes('udp')))
      return false;
    return ports.length === 0 || ports.some(({ start, end }) => start <= DNS_PORT && DNS_PORT <= end);
  });
  return (hit?.action ?? default_egress) === 'allow';
}

export function passes(
  { rules = [], default_egress }: NetworkPolicy,
  strict: boolean,
  /** The names that the sandbox resolved, by address. */
  resolved: ReadonlyMap<string, readonly string[]>,
  attempt: Try,
): boolean {
  const known = resolved.get(attempt.address) ?? [];
  const hit = rules.filter(leaves).find((rule) => {
    const { ports = [], protocols = [] } = rule;
    if (protocols.length > 0 && !protocols.includes('tcp')) return false;
    if (ports.length > 0 && !ports.some(({ start, end }) => start <= attempt.port && attempt.port <= end)) {
      return false;
    }
    const domain = domainOf(rule);
    if (domain === undefined) return isAt(rule, attempt.address);
    return namesThatCount(rule, strict, known, attempt).some((name) => covers(domain, name));
  });
  return (hit?.action ?? default_egress) === 'allow';
}

function namesThatCount(
  rule: Rule,
  strict: boolean,
  known: readonly string[],
  { kind, name }: Try,
): readonly string[] {
  if (!strict || kind === 'raw') return known;
  if (rule.action === 'deny') return name === undefined ? known : [name];
  return name !== undefined && known.includes(name) ? [name] : [];
}

const leaves = ({ direction }: Rule) => direction !== 'ingress';

function domainOf({ destination }: Rule): { name: string; isSuffix: boolean } | undefined {
  if (typeof destination === 'string') return undefined;
  if ('domain' in destination) return { name: destination.domain, isSuffix: false };
  return 'domain_suffix' in destination ? { name: destination.domain_suffix, isSuffix: true } : undefined;
}

function covers(domain: { name: string; isSuffix: boolean }, name: string): boolean {
  return name === domain.name || (domain.isSuffix && name.endsWith(`.${domain.name}`));
}

function isAt({ destination }: Rule, address: string): boolean {
  if (destination === 'any') return true;
  // Every address of this world is public.
  if ('group' in destination) return destination.group === 'public';
  return 'cidr' in destination && contains(destination.cidr, address);
}

/** Policies and tries about the names, at the addresses of `block`, such as 45.13.1. */
export function domainPolicies(block: string): fc.Arbitrary<{
  policy: NetworkPolicy;
  strict: boolean;
  resolved: string[];
  tries: Try[];
}> {
  const names = Object.keys(NAMES);
  const address = fc.constantFrom(...new Set(Object.values(NAMES))).map((last) => `${block}.${last}`);
  const name = fc.constantFrom(...names);
  const rule: fc.Arbitrary<Rule> = fc.record(
    {
      direction: fc.constantFrom('egress', 'egress', 'any'),
      action: fc.constantFrom('allow', 'allow', 'deny'),
      destination: fc.oneof(
        { weight: 4, arbitrary: name.map((domain) => ({ domain })) },
        {
          weight: 3,
          arbitrary: fc.constantFrom('a.test', 'test', 'b.test').map((domain_suffix) => ({ domain_suffix })),
        },
        { weight: 2, arbitrary: address.map((cidr) => ({ cidr })) },
        { weight: 1, arbitrary: fc.constantFrom('any' as const, { group: 'public' as const }) },
      ),
      ports: fc.constantFrom<{ start: number; end: number }[]>(
        [],
        [],
        [{ start: 443, end: 443 }],
        [{ start: 1, end: 100 }],
      ),
      protocols: fc.constantFrom<('tcp' | 'udp')[]>([], [], ['tcp'], ['udp']),
    },
    { requiredKeys: ['direction', 'action', 'destination'] },
  ) as fc.Arbitrary<Rule>;
  const attempt: fc.Arbitrary<Try> = fc
    .tuple(
      fc.constantFrom('tls', 'tls', 'http', 'raw'),
      address,
      fc.option(name, { nil: undefined, freq: 4 }),
      name,
    )
    .map(([kind, literal, shown, own]) => {
      const port = { tls: 443, http: 80, raw: 7 }[kind];
      // Mostly the address of the name, as honest clients have it.
      const place = shown === own ? literal : `${block}.${NAMES[shown ?? own]}`;
      if (kind === 'raw' || (shown === undefined && kind === 'tls')) return { kind, port, address: place };
      return { kind, port, address: place, name: shown ?? own };
    });
  return fc.record({
    policy: fc.record({
      rules: fc
        .array(rule, { minLength: 1, maxLength: 5 })
        .filter((rules) => rules.some((one) => domainOf(one) !== undefined)),
      default_egress: fc.constantFrom('deny', 'deny', 'allow'),
    }) as fc.Arbitrary<NetworkPolicy>,
    strict: fc.constantFrom(true, true, false),
    resolved: fc.subarray(names, { minLength: 2 }),
    tries: fc.array(attempt, { minLength: 16, maxLength: 16 }),
  });
}
