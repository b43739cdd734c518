/** The verdicts of a policy on Docker, by a walk along its rules that shares nothing with `src`. */
import fc from 'fast-check';
import type { GuardedGroup } from '../../src/network-policy/guarded-groups.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';

type Group = 'public' | 'private' | 'link_local' | 'metadata' | 'host' | 'resolver' | 'neighbour';

export const PORTS = [53, 80, 443, 5000, 8080];

/** The addresses of the peers, and their groups by hand. Those of `neighbour` are only targets. */
export const WHAT: Record<string, Group[]> = {
  '8.8.8.8': ['public'],
  '9.255.255.255': ['public'],
  '11.0.0.1': ['public'],
  '100.63.255.255': ['public'],
  '100.128.0.1': ['public'],
  '126.255.255.254': ['public'],
  '128.0.0.1': ['public'],
  '169.253.255.255': ['public'],
  '169.255.0.1': ['public'],
  '172.15.255.255': ['public'],
  '172.32.0.1': ['public'],
  '192.0.1.1': ['public'],
  '192.167.255.255': ['public'],
  '198.17.255.255': ['public'],
  '198.20.0.1': ['public'],
  '203.0.114.1': ['public'],
  '223.255.255.254': ['public'],
  '10.0.0.1': ['private'],
  '10.255.255.254': ['private'],
  '172.16.0.1': ['private'],
  '172.31.255.254': ['private'],
  '192.168.0.1': ['private'],
  '100.64.0.1': ['private'],
  '100.127.255.254': ['private'],
  '169.254.1.1': ['link_local'],
  '169.254.169.254': ['metadata'],
  '169.254.170.2': ['metadata'],
  '168.63.129.16': ['metadata'],
  '100.100.100.200': ['metadata'],
  '192.0.0.8': [],
  '192.0.2.1': [],
  '192.88.99.1': [],
  '198.18.0.1': [],
  '198.19.255.254': [],
  '198.51.100.5': [],
  '203.0.113.9': [],
  '240.0.0.1': [],
  '10.200.0.1': ['host'],
  '45.45.45.45': ['host'],
  '9.9.9.9': ['resolver', 'public'],
  '10.53.53.53': ['resolver', 'private'],
  '10.200.0.77': ['neighbour'],
  '2606:4700::1111': ['public'],
  '2400:cb00::1': ['public'],
  '2000::1': ['public'],
  '3ffe:ffff::1': ['public'],
  'fd12:3456::1': ['private'],
  'fc00::1': ['private'],
  'fd00:ec2::254': ['metadata'],
  'fd20:ce::254': ['metadata'],
  '64:ff9b::a00:1': [],
  '64:ff9b:1::1': [],
  '100::1': [],
  '2001::1': [],
  '2001:db8::1': [],
  '2002:a00:1::1': [],
  '3fff::1': [],
  '4000::1': [],
  '5f00::1': [],
  '8000::1': [],
  'fd00:200::1': ['host'],
  '2a00:45::45': ['host'],
  '2620:fe::fe': ['resolver', 'public'],
  'fd53::53': ['resolver', 'private'],
  'fd00:200::77': ['neighbour'],
};

export interface Packet {
  way: 'egress' | 'ingress';
  peer: string;
  protocol: 'tcp' | 'udp';
  port: number;
}

export function verdict(
  { default_egress, default_ingress, rules = [] }: NetworkPolicy,
  packet: Packet,
  openableGroups: readonly GuardedGroup[],
): Rule['action'] {
  const groups = WHAT[packet.peer]!;
  if (groups.includes('neighbour')) return 'deny';
  const closed = (['host', 'metadata'] as const).some(
    (one) => groups.includes(one) && !openableGroups.includes(one),
  );
  const asksHost = packet.port === 53 && groups.includes('host');
  if (packet.way === 'egress' && closed && !asksHost) return 'deny';
  const fallback = packet.way === 'egress' ? default_egress : default_ingress;
  return rules.find((rule) => isAboutResource(rule, packet))?.action ?? fallback ?? 'deny';
}

function isAboutResource(
  { direction, destination, protocols = [], ports = [] }: Rule,
  packet: Packet,
): boolean {
  const { way, peer, protocol, port } = packet;
  if (direction !== 'any' && direction !== way) return false;
  if (protocols.length > 0 && !protocols.includes(protocol)) return false;
  if (ports.length > 0 && !ports.some(({ start, end }) => start <= port && port <= end)) return false;
  if (typeof destination === 'string') return true;
  if ('cidr' in destination) return contains(destination.cidr, peer);
  if (!('group' in destination)) throw new Error('not asked here');
  const groups = WHAT[peer]!;
  const asksResolver = way === 'egress' && port === 53 && groups.includes('resolver');
  if (destination.group === 'host') return asksResolver || groups.includes('host');
  if (destination.group === 'public') return groups.includes('public');
  return !asksResolver && (groups as string[]).includes(destination.group);
}

export function contains(cidr: string, address: string): boolean {
  const [base, prefix] = cidr.split('/');
  if (base!.includes(':') !== address.includes(':')) return false;
  const bits = address.includes(':') ? 128n : 32n;
  const shift = bits - BigInt(prefix ?? bits);
  return numberOf(base!) >> shift === numberOf(address) >> shift;
}

function numberOf(address: string): bigint {
  if (!address.includes(':')) return address.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  const [head, tail = ''] = address.split('::');
  const left = head!.split(':').filter(Boolean);
  const right = tail.split(':').filter(Boolean);
  const parts = [...left, ...Array.from({ length: 8 - left.length - right.length }, () => '0'), ...right];
  return parts.reduce((sum, part) => sum * 65_536n + BigInt(`0x${part}`), 0n);
}

const address = fc.constantFrom(...Object.keys(WHAT));
const cidr = fc
  .tuple(address, fc.option(fc.nat(128), { nil: undefined }))
  .map(([base, prefix]) =>
    prefix === undefined ? base : `${base}/${base.includes(':') ? prefix : Math.floor(prefix / 4)}`,
  );
const range = fc
  .tuple(fc.constantFrom(0, 1, ...PORTS, 65_535), fc.constantFrom(...PORTS, 65_535))
  .map(([a, b]) => ({ start: Math.min(a, b), end: Math.max(a, b) }));
const rule: fc.Arbitrary<Rule> = fc
  .record({
    direction: fc.constantFrom('egress', 'ingress', 'any'),
    destination: fc.oneof(
      fc.constant('any' as const),
      fc.record({ cidr }),
      fc.record({
        group: fc.constantFrom(
          'public',
          'private',
          'link_local',
          'metadata',
          'host',
          'loopback',
          'multicast',
        ),
      }),
    ),
    action: fc.constantFrom('allow', 'deny'),
    protocols: fc.array(fc.constantFrom('tcp', 'udp', 'icmpv4', 'icmpv6'), { maxLength: 2 }),
    ports: fc.array(range, { maxLength: 2 }),
  })
  .map((made) => ({
    ...made,
    // Admission refuses ports together with protocols that have none.
    ports: made.protocols.some((protocol) => protocol.startsWith('icmp')) ? [] : made.ports,
  })) as fc.Arbitrary<Rule>;
const action = fc.constantFrom('allow' as const, 'deny' as const);
export const policy: fc.Arbitrary<NetworkPolicy> = fc.record({
  default_egress: action,
  default_ingress: action,
  rules: fc.array(rule, { maxLength: 8 }),
});
export const openableGroups = fc.subarray<GuardedGroup>(['host', 'metadata']);
export const packet: fc.Arbitrary<Packet> = fc.record({
  way: fc.constantFrom('egress', 'ingress'),
  peer: address,
  protocol: fc.constantFrom('tcp', 'udp'),
  port: fc.constantFrom(...PORTS),
});
