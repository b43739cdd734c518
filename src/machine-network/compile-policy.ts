import { isIPv4, isIPv6 } from 'node:net';
import { GROUPS } from '../lib/special-addresses.js';
import { ADDRESS_SETS, targetOf, type AddressSetName } from '../network-policy/destination.js';
import type { GuardedGroup } from '../network-policy/guarded-groups.js';
import { defaultFor, rulesFor } from '../network-policy/order.js';
import type { Action, Direction, NetworkPolicy, Rule } from '../network-policy/schema.js';
import { CARRIERS, DNS_PORT, dnsCarriersOf, trafficOf, type Carrier } from '../network-policy/traffic.js';
import { isDomainRule } from '../network-policy/domains.js';
import { bandwidthRules } from './bandwidth.js';
import { AROUND_PROGRAMS, type Position } from './position.js';
import type { GatedRules } from './gateway/gated-rules.js';
import type { PublishedPort } from '../spec/network-schema.js';
import { machineOnlyRules } from './machine-only-ports.js';

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

export interface OwnRules {
  /** The most connections at once by carrier, of those that the sandbox begins. Null: no limit of its own. */
  limits?: { tcp: number | null; udp: number | null } | null | undefined;
  /** Its connections need the gateway. */
  gated?: GatedRules | undefined;
  /** The ports that it publishes on the host. */
  published?: readonly PublishedPort[] | undefined;
  /** Default: its programs are in the namespace of the rules. */
  position?: Position;
}

const PEER = { egress: 'daddr', ingress: 'saddr' } as const;
/**
 * All sandboxes of a machine share its table of tracked connections. `open`: without closed TCP connections, which stay
 * in that table for two minutes. `tcpPerSecond`: on average, after a burst of `open`.
 */
export const FLOWS = { open: 4_096, tcpPerSecond: 100 };
/**
 * An nftables script that atomically replaces the previous rules.
 *
 * The first verdict of a chain is final, so the order is part of the policy:
 * 1. The statements of the position. Traffic of the sandbox to itself passes there, and counts for no limit.
 * 2. The bandwidth counts packets of established connections too, which the next step accepts.
 * 3. Replies pass before the rules: each connection was decided by its first packet.
 * 4. Other sandboxes, the limits of connections, the guarded groups and ports for the machine alone come before the
 *    rules, which cannot open them.
 * 5. The rules of the policy, then its default.
 */
export function compilePolicy(
  policy: NetworkPolicy,
  environment: NetworkEnvironment,
  { limits, gated, published = [], position = AROUND_PROGRAMS }: OwnRules = {},
): string {
  const allowed = gated?.accept ?? 'accept';
  const bandwidth = lines(bandwidthRules(environment.bandwidthMbits));
  return `table inet sandkeep
delete table inet sandkeep
table inet sandkeep {
${addressSets(environment)}
${gated ? `${gated.sets().join('\n')}\n` : ''}${gated ? refuseChain() : ''}${gated?.chains(position) ?? ''}${verdictExceptHost('allow', allowed)}
${verdictExceptHost('deny', 'jump refuse')}
${gated ? '' : refuseChain()}${guardedChain(environment)}
${position.untracked.length === 0 ? '' : `  chain untracked {\n${lines(position.untracked)}\n  }\n`}  chain leaving {
${lines(position.leaving)}
${bandwidth}
${lines(commonRules('egress'))}
    ct count over ${FLOWS.open} jump refuse
    meta l4proto tcp limit rate over ${FLOWS.tcpPerSecond}/second burst ${FLOWS.open} packets jump refuse
${statements([...ownLimits(limits), ...(gated?.beforeGuard() ?? [])])}    jump guarded
${lines(compileRules(policy, 'egress', gated))}
    ${defaultFor(policy, 'egress') === 'allow' ? allowed : 'jump refuse'}
  }
  chain arriving {
${lines(position.arriving)}
${bandwidth}
${lines(commonRules('ingress'))}
${statements([...(gated ? [gated.arriving()] : []), ...machineOnlyRules(published)])}${lines(compileRules(policy, 'ingress'))}
    ${defaultFor(policy, 'ingress') === 'allow' ? 'accept' : 'drop'}
  }
  chain passing {
    type filter hook ${position.passing} priority filter; policy drop;
  }
}
`;
}

function refuseChain(): string {
  return `  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
`;
}

/** Only first packets get here, and the kernel forgets closed connections. */
function ownLimits(limits: OwnRules['limits']): string[] {
  return CARRIERS.flatMap((carrier) => {
    const most = limits?.[carrier] ?? null;
    return most === null
      ? []
      : [`meta l4proto ${carrier} ct count over ${Math.min(FLOWS.open, most)} jump refuse`];
  });
}

/** Each address counts for one group, `host` first: "allow private" must not open the host's address on the bridge. */
export function addressSets(environment: NetworkEnvironment): string {
  const { resolvers } = environment;
  const named = {
    ...changingSets(environment),
    resolver: { v4: resolvers.filter(isV4), v6: resolvers.filter(isV6) },
    ...ADDRESS_SETS,
  };
  return Object.entries(named)
    .flatMap(([name, { v4, v6 }]) => [
      addressSet(`${name}4`, 'ipv4_addr', v4),
      addressSet(`${name}6`, 'ipv6_addr', v6),
    ])
    .join('\n');
}

type Changing = Pick<NetworkEnvironment, 'hosts' | 'neighbours'>;

/** The machine may get and lose such addresses while a sandbox runs. */
function changingSets({ hosts, neighbours }: Changing) {
  return {
    host: { v4: hosts.filter(isV4), v6: hosts.filter(isV6) },
    neighbour: { v4: neighbours.filter(isV4), v6: [...neighbours.filter(isV6), ...GROUPS.link_local.v6] },
  };
}

/** An nftables script that atomically replaces the sets of such addresses in loaded rules, and nothing else. */
export function changedAddresses(environment: Changing): string {
  return Object.entries(changingSets(environment))
    .flatMap(([name, { v4, v6 }]) => [changedSet(`${name}4`, v4), changedSet(`${name}6`, v6)])
    .join('');
}

function changedSet(name: string, elements: readonly string[]): string {
  const set = `inet sandkeep ${name}`;
  const all = [...new Set(elements)].join(', ');
  return `flush set ${set}\n${all === '' ? '' : `add element ${set} { ${all} }\n`}`;
}

function addressSet(name: string, type: string, elements: readonly string[]): string {
  const content = elements.length === 0 ? '' : ` elements = { ${[...new Set(elements)].join(', ')} };`;
  return `  set ${name} { type ${type}; flags interval; auto-merge;${content} }`;
}

/** Leaves resolvers, and port 53 of the host, to the policy. */
export function guardedChain({ openableGroups }: NetworkEnvironment): string {
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

function verdictExceptHost(action: Action, verdict: string): string {
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

function compileRules(policy: NetworkPolicy, direction: Direction, gated?: GatedRules): string[] {
  return rulesFor(policy, direction).flatMap((rule, position) => {
    const judged = gated?.firstJudged === position ? [gated.judge()] : [];
    if (!isDomainRule(rule)) return [...judged, ...compileRule(rule, direction, gated)];
    // A connection from outside has no name.
    if (!gated || direction === 'ingress') return [];
    return [...judged, ...combine(gated.domainPeers(rule, position), kindsOf(rule), verdictOf(rule, gated))];
  });
}

function verdictOf({ action }: Rule, gated: GatedRules | undefined): string {
  return action === 'allow' ? (gated?.accept ?? 'accept') : 'jump refuse';
}

function compileRule(rule: Rule, direction: Direction, gated: GatedRules | undefined): string[] {
  const { action } = rule;
  const verdict =
    action === 'allow' ? (gated?.accept ?? 'accept') : direction === 'egress' ? 'jump refuse' : 'drop';
  const peer = PEER[direction];
  const target = targetOf(rule.destination);
  const kinds = kindsOf(rule);
  switch (target.kind) {
    case 'any':
      return combine([''], kinds, verdict);
    case 'block':
      return combine([matchCidr(target.cidr, peer)], kinds, verdict);
    case 'host': {
      const hosts = combine([`ip ${peer} @host4`, `ip6 ${peer} @host6`], kinds, verdict);
      if (direction === 'ingress') return hosts;
      const resolvers = [`ip ${peer} @resolver4`, `ip6 ${peer} @resolver6`];
      return [...hosts, ...combine(resolvers, dnsKindsOf(rule), verdict)];
    }
    case 'set': {
      const matches = (['4', '6'] as const).map((family) => matchSet(target, family, peer));
      // A rule for public addresses is about public resolvers too, so only the host is left out.
      if (direction === 'egress' && target.within !== undefined)
        return combine(matches, kinds, `jump ${action}_but_host`);
      const [v4, v6] = matches;
      return combine([`${v4} ip ${peer} != @host4`, `${v6} ip6 ${peer} != @host6`], kinds, verdict);
    }
  }
}

function matchSet(
  { within, without }: { within?: AddressSetName; without?: AddressSetName },
  family: '4' | '6',
  peer: string,
): string {
  const field = `${family === '4' ? 'ip' : 'ip6'} ${peer}`;
  return [within && `${field} @${within}${family}`, without && `${field} != @${without}${family}`]
    .filter(Boolean)
    .join(' ');
}

function combine(peers: readonly string[], kinds: readonly string[], verdict: string): string[] {
  return peers.flatMap((peer) => kinds.map((kind) => `${peer} ${kind} ${verdict}`.trim()));
}

function kindsOf(rule: Rule): string[] {
  const traffic = trafficOf(rule);
  if (traffic === 'everything') return [''];
  const { carriers, ports, icmp } = traffic;
  const ranges = ports.map(({ start, end }) => (start === end ? `${start}` : `${start}-${end}`));
  return [
    ...(carriers.length === 0 ? [] : [matchCarriers(carriers, ranges)]),
    ...(icmp.includes('icmpv4') ? ['meta nfproto ipv4 meta l4proto icmp'] : []),
    ...(icmp.includes('icmpv6') ? ['meta nfproto ipv6 meta l4proto icmpv6'] : []),
  ];
}

function dnsKindsOf(rule: Rule): string[] {
  const carriers = dnsCarriersOf(rule);
  return carriers.length === 0 ? [] : [matchCarriers(carriers, [`${DNS_PORT}`])];
}

function matchCarriers(carriers: readonly Carrier[], ports: readonly string[]): string {
  const dport = ports.length === 0 ? '' : ` th dport { ${ports.join(', ')} }`;
  return `meta l4proto { ${carriers.join(', ')} }${dport}`;
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

/** With a line break behind each, so that none leaves no empty line. */
function statements(rules: readonly string[]): string {
  return rules.map((rule) => `    ${rule}\n`).join('');
}

function lines(rules: readonly string[]): string {
  return rules.map((rule) => `    ${rule}`).join('\n');
}
