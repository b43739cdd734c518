import { isIPv4, isIPv6 } from 'node:net';
import { GROUPS, SPECIAL } from '../../../lib/special-addresses.js';
import type { NetworkPolicy } from '../../../sandboxes/spec/network-schema.js';
import { bandwidthRules } from './bandwidth.js';

export interface NetworkEnvironment {
  hosts: readonly string[];
  /** In the group `host`, for port 53 only. */
  resolvers: readonly string[];
  /** CIDR blocks of other sandboxes. No policy opens them, except for `hosts` in them. */
  neighbours: readonly string[];
  openableGroups: readonly GuardedGroup[];
  /** Mbit/s in each direction, without traffic of the sandbox to itself. 0: no limit. */
  bandwidthMbits: number;
}

/** Traffic to these groups may act with the rights of the machine. */
export const GUARDED_GROUPS = ['host', 'metadata'] as const;
export type GuardedGroup = (typeof GUARDED_GROUPS)[number];

type Rule = NonNullable<NetworkPolicy['rules']>[number];
type Traffic = Pick<Rule, 'protocols' | 'ports'>;
type Direction = 'egress' | 'ingress';
const PEER = { egress: 'daddr', ingress: 'saddr' } as const;
const DNS_PORT = 53;
/**
 * All sandboxes of a machine share its table of tracked connections. `open`: without closed TCP connections, which stay in that table
 * for two minutes. `tcpPerSecond`: on average, after a burst of `open`.
 */
export const FLOWS = { open: 4_096, tcpPerSecond: 100 };
/** The engine's resolver, which reveals the other containers on the bridge. */
const INNER_RESOLVER = '127.0.0.11';

/**
 * An nftables script that atomically replaces the previous rules. The engine's resolver is closed on all ports, because
 * its address translation follows these chains.
 */
export function compilePolicy(policy: NetworkPolicy, environment: NetworkEnvironment): string {
  // Before the packets of established connections, which the next rules accept.
  const bandwidth = lines(bandwidthRules(environment.bandwidthMbits));
  return `table inet sandkeep
delete table inet sandkeep
table inet sandkeep {
${addressSets(environment)}
${verdictExceptHost('allow', 'accept')}
${verdictExceptHost('deny', 'jump refuse')}
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
${guardedChain(environment)}
  chain untracked {
    type filter hook output priority raw; policy accept;
    oifname "lo" notrack
  }
  chain leaving {
    type filter hook output priority mangle; policy drop;
    ip daddr ${INNER_RESOLVER} jump refuse
    oifname "lo" accept
${bandwidth}
${lines(commonRules('egress'))}
    ct count over ${FLOWS.open} jump refuse
    meta l4proto tcp limit rate over ${FLOWS.tcpPerSecond}/second burst ${FLOWS.open} packets jump refuse
    jump guarded
${lines(rulesOf(policy, 'egress'))}
    ${policy.default_egress === 'allow' ? 'accept' : 'jump refuse'}
  }
  chain arriving {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
${bandwidth}
${lines(commonRules('ingress'))}
${lines(rulesOf(policy, 'ingress'))}
    ${policy.default_ingress === 'allow' ? 'accept' : 'drop'}
  }
  chain passing {
    type filter hook forward priority filter; policy drop;
  }
}
`;
}

export function blocksEverything({ default_egress, default_ingress, rules = [] }: NetworkPolicy): boolean {
  return [default_egress, default_ingress, ...rules.map(({ action }) => action)].every(
    (action) => action !== 'allow',
  );
}

/** Each address counts for one group, `host` first: "allow private" must not open the host's address on the bridge. */
function addressSets({ hosts, resolvers, neighbours }: NetworkEnvironment): string {
  const link = { v4: neighbours.filter(isV4), v6: [...neighbours.filter(isV6), ...GROUPS.link_local.v6] };
  const named = {
    host: { v4: hosts.filter(isV4), v6: hosts.filter(isV6) },
    resolver: { v4: resolvers.filter(isV4), v6: resolvers.filter(isV6) },
    neighbour: link,
    special: SPECIAL,
    ...GROUPS,
  };
  return Object.entries(named)
    .flatMap(([name, { v4, v6 }]) => [
      addressSet(`${name}4`, 'ipv4_addr', v4),
      addressSet(`${name}6`, 'ipv6_addr', v6),
    ])
    .join('\n');
}

function addressSet(name: string, type: string, elements: readonly string[]): string {
  const content = elements.length === 0 ? '' : ` elements = { ${[...new Set(elements)].join(', ')} };`;
  return `  set ${name} { type ${type}; flags interval; auto-merge;${content} }`;
}

/** Leaves resolvers, and port 53 of the host, to the policy. */
function guardedChain({ openableGroups }: NetworkEnvironment): string {
  const dns = `meta l4proto { tcp, udp } th dport ${DNS_PORT}`;
  const rules = [
    ...['ip daddr @resolver4', 'ip6 daddr @resolver6'].map((peer) => `${peer} ${dns} return`),
    ...['ip daddr @host4', 'ip6 daddr @host6'].flatMap((peer) => [
      ...(openableGroups.includes('host') ? [] : [`${peer} ${dns} return`, `${peer} jump refuse`]),
      `${peer} return`,
    ]),
    ...['ip daddr @metadata4', 'ip6 daddr @metadata6'].flatMap((peer) =>
      openableGroups.includes('metadata') ? [] : [`${peer} jump refuse`],
    ),
  ];
  return `  chain guarded {\n${lines(rules)}\n  }`;
}

function verdictExceptHost(action: Rule['action'], verdict: string): string {
  return `  chain ${action}_but_host {
    ip daddr @host4 return
    ip6 daddr @host6 return
    ip daddr @resolver4 meta l4proto { tcp, udp } th dport ${DNS_PORT} return
    ip6 daddr @resolver6 meta l4proto { tcp, udp } th dport ${DNS_PORT} return
    ${verdict}
  }`;
}

function commonRules(direction: Direction): string[] {
  const peer = PEER[direction];
  const verdict = direction === 'egress' ? 'jump refuse' : 'drop';
  return [
    'ct state established,related accept',
    // IPv6 needs these to find its gateway.
    'icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept',
    `ip ${peer} @neighbour4 ip ${peer} != @host4 ${verdict}`,
    `ip6 ${peer} @neighbour6 ip6 ${peer} != @host6 ${verdict}`,
  ];
}

function rulesOf({ rules = [] }: NetworkPolicy, direction: Direction): string[] {
  return rules
    .filter((rule) => rule.direction === direction || rule.direction === 'any')
    .flatMap((rule) => compileRule(rule, direction));
}

function compileRule(rule: Rule, direction: Direction): string[] {
  const { destination, action } = rule;
  const verdict = action === 'allow' ? 'accept' : direction === 'egress' ? 'jump refuse' : 'drop';
  const peer = PEER[direction];
  if (destination === 'any') return combine([''], kindsOf(rule), verdict);
  if ('cidr' in destination) return combine([matchCidr(destination.cidr, peer)], kindsOf(rule), verdict);
  if (!('group' in destination)) throw new Error('a rule by domain must not get past admission');

  const { group } = destination;
  if (group === 'public') {
    return combine(
      [`ip ${peer} != @special4 ip ${peer} != @host4`, `ip6 ${peer} != @special6 ip6 ${peer} != @host6`],
      kindsOf(rule),
      verdict,
    );
  }
  if (group === 'host') {
    const hosts = combine([`ip ${peer} @host4`, `ip6 ${peer} @host6`], kindsOf(rule), verdict);
    const resolvers = [`ip ${peer} @resolver4`, `ip6 ${peer} @resolver6`];
    return direction === 'ingress' ? hosts : [...hosts, ...combine(resolvers, dnsKindsOf(rule), verdict)];
  }
  const exceptMetadata = (family: '4' | '6', ip: string) =>
    group === 'metadata' ? '' : ` ${ip} ${peer} != @metadata${family}`;
  const matches = [
    `ip ${peer} @${group}4${exceptMetadata('4', 'ip')}`,
    `ip6 ${peer} @${group}6${exceptMetadata('6', 'ip6')}`,
  ];
  if (direction === 'egress') return combine(matches, kindsOf(rule), `jump ${action}_but_host`);
  const [v4, v6] = matches;
  return combine([`${v4} ip saddr != @host4`, `${v6} ip6 saddr != @host6`], kindsOf(rule), verdict);
}

function combine(peers: readonly string[], kinds: readonly string[], verdict: string): string[] {
  return peers.flatMap((peer) => kinds.map((kind) => `${peer} ${kind} ${verdict}`.trim()));
}

/** A rule with ports matches only TCP and UDP. */
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

function dnsKindsOf({ protocols = [], ports = [] }: Traffic): string[] {
  const covers = ports.length === 0 || ports.some(({ start, end }) => start <= DNS_PORT && DNS_PORT <= end);
  if (!covers || (protocols.length > 0 && !protocols.some(isCarrier))) return [];
  return kindsOf({ protocols: protocols.filter(isCarrier), ports: [{ start: DNS_PORT, end: DNS_PORT }] });
}

export function isOnlyDns({ ports = [], protocols = [] }: Traffic): boolean {
  const onPort = ports.length > 0 && ports.every(({ start, end }) => start === DNS_PORT && end === DNS_PORT);
  return onPort && protocols.every(isCarrier);
}

function isCarrier(protocol: string): boolean {
  return protocol === 'tcp' || protocol === 'udp';
}

/** nftables has no `/0`. */
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
