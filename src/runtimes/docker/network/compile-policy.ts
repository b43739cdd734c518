import { isIPv4, isIPv6 } from 'node:net';
import { GROUPS, SPECIAL } from '../../../lib/special-addresses.js';
import type { NetworkPolicy } from '../../../sandboxes/spec/network-schema.js';

/** What a policy means depends on where the sandbox stands. All are IP addresses, `neighbours` CIDR blocks. */
export interface NetworkEnvironment {
  /** The machine the sandbox runs on, by all its names: the group `host`. */
  hosts: readonly string[];
  /** Belong to the group `host` too, but only with port 53. */
  resolvers: readonly string[];
  /** Where other sandboxes are. No policy opens it; only `hosts` in it can be reached. */
  neighbours: readonly string[];
  /** Guarded groups that policies may open. The others stay closed on the way out, whatever a policy says. */
  lifted: readonly GuardedGroup[];
}

/** What the operator keeps for the machine unless told otherwise: whoever reaches it may act as the machine. */
export const GUARDED_GROUPS = ['host', 'metadata'] as const;
export type GuardedGroup = (typeof GUARDED_GROUPS)[number];

type Rule = NonNullable<NetworkPolicy['rules']>[number];
type Traffic = Pick<Rule, 'protocols' | 'ports'>;
type Way = 'egress' | 'ingress';
/** The other side of a packet, as nftables calls it. */
const PEER = { egress: 'daddr', ingress: 'saddr' } as const;
const DNS_PORT = 53;
/** The engine's own resolver listens inside. It tells the names and addresses of everything on the bridge. */
const INNER_RESOLVER = '127.0.0.11';

/**
 * Translates a policy into a script for nftables that replaces what an earlier one had made, in one step.
 *
 * Replies pass, and what a sandbox sends itself is not looked at. What is denied is told so on the way out and ignored on
 * the way in. The engine's resolver is closed at any port: its address translation comes after these chains.
 */
export function compilePolicy(policy: NetworkPolicy, around: NetworkEnvironment): string {
  return `table inet sandkeep
delete table inet sandkeep
table inet sandkeep {
${sets(around)}
${exceptions('allow', 'accept')}
${exceptions('deny', 'jump refuse')}
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
${guard(around)}
  chain leaving {
    type filter hook output priority mangle; policy drop;
    ip daddr ${INNER_RESOLVER} jump refuse
    oifname "lo" accept
${lines(common('egress'))}
    jump guarded
${lines(rulesOf(policy, 'egress'))}
    ${policy.default_egress === 'allow' ? 'accept' : 'jump refuse'}
  }
  chain arriving {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
${lines(common('ingress'))}
${lines(rulesOf(policy, 'ingress'))}
    ${policy.default_ingress === 'allow' ? 'accept' : 'drop'}
  }
  chain passing {
    type filter hook forward priority filter; policy drop;
  }
}
`;
}

/** Would a sandbox with this policy reach nothing and be reached by nothing? */
export function blocksEverything({ default_egress, default_ingress, rules = [] }: NetworkPolicy): boolean {
  return [default_egress, default_ingress, ...rules.map(({ action }) => action)].every(
    (action) => action !== 'allow',
  );
}

/**
 * No address counts for two groups: `host` goes before all others and `metadata` before the range it lies in, so "allow
 * private" does not open the host's address on the bridge.
 */
function sets({ hosts, resolvers, neighbours }: NetworkEnvironment): string {
  // A sandbox reaches the other addresses of its own link without a gateway.
  const link = { v4: neighbours.filter(isV4), v6: [...neighbours.filter(isV6), ...GROUPS.link_local.v6] };
  const named = {
    host: { v4: hosts.filter(isV4), v6: hosts.filter(isV6) },
    resolver: { v4: resolvers.filter(isV4), v6: resolvers.filter(isV6) },
    neighbour: link,
    special: SPECIAL,
    ...GROUPS,
  };
  return Object.entries(named)
    .flatMap(([name, { v4, v6 }]) => [set(`${name}4`, 'ipv4_addr', v4), set(`${name}6`, 'ipv6_addr', v6)])
    .join('\n');
}

function set(name: string, type: string, elements: readonly string[]): string {
  const content = elements.length === 0 ? '' : ` elements = { ${[...new Set(elements)].join(', ')} };`;
  return `  set ${name} { type ${type}; flags interval; auto-merge;${content} }`;
}

/** Refuses what no policy opens here. Resolvers, and port 53 of the host, are left to the policy. */
function guard({ lifted }: NetworkEnvironment): string {
  const dns = `meta l4proto { tcp, udp } th dport ${DNS_PORT}`;
  const rules = [
    ...['ip daddr @resolver4', 'ip6 daddr @resolver6'].map((peer) => `${peer} ${dns} return`),
    ...['ip daddr @host4', 'ip6 daddr @host6'].flatMap((peer) => [
      ...(lifted.includes('host') ? [] : [`${peer} ${dns} return`, `${peer} jump refuse`]),
      // An address that is the host's as well goes by the host's rules.
      `${peer} return`,
    ]),
    ...['ip daddr @metadata4', 'ip6 daddr @metadata6'].flatMap((peer) =>
      lifted.includes('metadata') ? [] : [`${peer} jump refuse`],
    ),
  ];
  return `  chain guarded {\n${lines(rules)}\n  }`;
}

/** A verdict for the addresses of a group that are not in `host` as well, which has its own rules. */
function exceptions(action: Rule['action'], verdict: string): string {
  return `  chain ${action}_but_host {
    ip daddr @host4 return
    ip6 daddr @host6 return
    ip daddr @resolver4 meta l4proto { tcp, udp } th dport ${DNS_PORT} return
    ip6 daddr @resolver6 meta l4proto { tcp, udp } th dport ${DNS_PORT} return
    ${verdict}
  }`;
}

/** What holds in each direction, whatever the policy says. */
function common(way: Way): string[] {
  const peer = PEER[way];
  const verdict = way === 'egress' ? 'jump refuse' : 'drop';
  return [
    'ct state established,related accept',
    // Without these IPv6 does not find its gateway.
    'icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept',
    `ip ${peer} @neighbour4 ip ${peer} != @host4 ${verdict}`,
    `ip6 ${peer} @neighbour6 ip6 ${peer} != @host6 ${verdict}`,
  ];
}

function rulesOf({ rules = [] }: NetworkPolicy, way: Way): string[] {
  return rules
    .filter(({ direction }) => direction === way || direction === 'any')
    .flatMap((rule) => compileRule(rule, way));
}

function compileRule(rule: Rule, way: Way): string[] {
  const { destination, action } = rule;
  const verdict = action === 'allow' ? 'accept' : way === 'egress' ? 'jump refuse' : 'drop';
  const peer = PEER[way];
  if (destination === 'any') return each([''], kindsOf(rule), verdict);
  if ('cidr' in destination) return each([matchCidr(destination.cidr, peer)], kindsOf(rule), verdict);
  if (!('group' in destination)) throw new Error('a rule by domain must not get past admission');

  const { group } = destination;
  if (group === 'public') {
    return each(
      [`ip ${peer} != @special4 ip ${peer} != @host4`, `ip6 ${peer} != @special6 ip6 ${peer} != @host6`],
      kindsOf(rule),
      verdict,
    );
  }
  if (group === 'host') {
    const hosts = each([`ip ${peer} @host4`, `ip6 ${peer} @host6`], kindsOf(rule), verdict);
    const resolvers = [`ip ${peer} @resolver4`, `ip6 ${peer} @resolver6`];
    return way === 'ingress' ? hosts : [...hosts, ...each(resolvers, dnsKindsOf(rule), verdict)];
  }
  const besides = (family: '4' | '6', ip: string) =>
    group === 'metadata' ? '' : ` ${ip} ${peer} != @metadata${family}`;
  const matches = [
    `ip ${peer} @${group}4${besides('4', 'ip')}`,
    `ip6 ${peer} @${group}6${besides('6', 'ip6')}`,
  ];
  if (way === 'egress') return each(matches, kindsOf(rule), `jump ${action}_but_host`);
  const [v4, v6] = matches;
  return each([`${v4} ip saddr != @host4`, `${v6} ip6 saddr != @host6`], kindsOf(rule), verdict);
}

function each(peers: readonly string[], kinds: readonly string[], verdict: string): string[] {
  return peers.flatMap((peer) => kinds.map((kind) => `${peer} ${kind} ${verdict}`.trim()));
}

/** The kinds of packets a rule is about. Only TCP and UDP have ports: with ports it is about nothing else. */
function kindsOf({ protocols = [], ports = [] }: Traffic): string[] {
  if (protocols.length === 0 && ports.length === 0) return [''];
  const ranges = ports.map(({ start, end }) => (start === end ? `${start}` : `${start}-${end}`));
  const dport = ports.length === 0 ? '' : ` th dport { ${ranges.join(', ')} }`;
  const carriers = protocols.length === 0 ? ['tcp', 'udp'] : protocols.filter(isCarrier);
  return [
    ...(carriers.length === 0 ? [] : [`meta l4proto { ${[...new Set(carriers)].join(', ')} }${dport}`]),
    ...(protocols.includes('icmpv4') && ports.length === 0 ? ['meta nfproto ipv4 meta l4proto icmp'] : []),
    ...(protocols.includes('icmpv6') && ports.length === 0 ? ['meta nfproto ipv6 meta l4proto icmpv6'] : []),
  ];
}

/** What a rule about resolvers comes to: port 53, as far as the rule has it. */
function dnsKindsOf({ protocols = [], ports = [] }: Traffic): string[] {
  const covers = ports.length === 0 || ports.some(({ start, end }) => start <= DNS_PORT && DNS_PORT <= end);
  if (!covers || (protocols.length > 0 && !protocols.some(isCarrier))) return [];
  return kindsOf({ protocols: protocols.filter(isCarrier), ports: [{ start: DNS_PORT, end: DNS_PORT }] });
}

/** Is the rule about port 53 of TCP and UDP alone? The operator's guard leaves that to the policy. */
export function isOnlyDns({ ports = [], protocols = [] }: Traffic): boolean {
  const onPort = ports.length > 0 && ports.every(({ start, end }) => start === DNS_PORT && end === DNS_PORT);
  return onPort && protocols.every(isCarrier);
}

function isCarrier(protocol: string): boolean {
  return protocol === 'tcp' || protocol === 'udp';
}

/** `/0` is every address of the family, which nftables has another word for. */
function matchCidr(cidr: string, peer: string): string {
  const [address, prefix] = cidr.split('/');
  const v4 = isV4(cidr);
  if (prefix === undefined) return `${v4 ? 'ip' : 'ip6'} ${peer} ${address}`;
  if (Number(prefix) === 0) return `meta nfproto ${v4 ? 'ipv4' : 'ipv6'}`;
  return `${v4 ? 'ip' : 'ip6'} ${peer} ${address}/${Number(prefix)}`;
}

function isV4(cidr: string): boolean {
  return isIPv4(cidr.split('/')[0]!);
}

function isV6(cidr: string): boolean {
  return isIPv6(cidr.split('/')[0]!);
}

function lines(rules: readonly string[]): string {
  return rules.map((rule) => `    ${rule}`).join('\n');
}
