/** The verdicts of a policy on Kubernetes, by a walk along its rules that shares nothing with `src`. */
import fc from 'fast-check';
import { isSubnetOfAny } from '../../src/lib/cidr.js';
import { GROUPS, SPECIAL } from '../../src/lib/special-addresses.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import type { PolicyEnvironment } from '../../src/engines/kubernetes/network/compile-policy.js';

export interface Packet {
  direction: 'egress' | 'ingress';
  /** `pod`: one of the cluster that is no sandbox. */
  peer: string;
  protocol: 'tcp' | 'udp';
  port: number;
}

export const environment: PolicyEnvironment = {
  families: ['v4', 'v6'],
  clusterCidrs: ['10.0.0.0/8'],
  resolvers: ['10.96.0.10'],
};
const CIDRS = [
  '0.0.0.0/0',
  '1.2.3.0/24',
  '1.2.3.4',
  '192.168.0.0/16',
  '10.1.0.0/16',
  '2001:4860::/32',
  '::/0',
];
const PEERS = [
  'pod',
  '1.2.3.4',
  '1.2.3.200',
  '9.9.9.9',
  '192.168.7.7',
  '10.1.2.3',
  '10.96.0.10',
  '169.254.169.254',
  '169.254.1.1',
  '224.0.0.5',
  '2001:4860::8888',
  'fd00:ec2::254',
  'fd00::1',
];
const PORTS = [1, 22, 53, 54, 80, 443, 8_000, 8_080, 65_535];

const rules: fc.Arbitrary<Rule> = fc.record(
  {
    direction: fc.constantFrom('egress', 'ingress', 'any'),
    destination: fc.oneof(
      fc.constant('any' as const),
      fc.record({ cidr: fc.constantFrom(...CIDRS) }),
      fc.record({
        group: fc.constantFrom('public', 'private', 'link_local', 'metadata', 'multicast', 'host'),
      }),
    ),
    action: fc.constantFrom('allow', 'deny'),
    protocols: fc.subarray(['tcp', 'udp'] as ('tcp' | 'udp')[]),
    ports: fc.array(
      fc
        .tuple(fc.constantFrom(...PORTS), fc.constantFrom(...PORTS))
        .map(([a, b]) => ({ start: Math.min(a, b), end: Math.max(a, b) })),
      { maxLength: 2 },
    ),
  },
  { requiredKeys: ['direction', 'destination', 'action'] },
);
export const policies: fc.Arbitrary<NetworkPolicy> = fc.record({
  default_egress: fc.constantFrom('allow', 'deny'),
  default_ingress: fc.constantFrom('allow', 'deny'),
  rules: fc.array(rules, { maxLength: 6 }),
});
export const packets: fc.Arbitrary<Packet> = fc.record({
  direction: fc.constantFrom('egress', 'ingress'),
  peer: fc.constantFrom(...PEERS),
  protocol: fc.constantFrom('tcp', 'udp'),
  port: fc.constantFrom(...PORTS),
});

/** By the order of the rules, as docs/runtimes.md states it. */
export function isAllowed(policy: NetworkPolicy, packet: Packet): boolean {
  const { direction, peer, protocol, port } = packet;
  if (!isOpen(packet)) return false;
  const rule = (policy.rules ?? []).find(
    (candidate) =>
      (candidate.direction === direction || candidate.direction === 'any') &&
      ((candidate.protocols ?? []).length === 0 || candidate.protocols!.includes(protocol)) &&
      ((candidate.ports ?? []).length === 0 ||
        candidate.ports!.some(({ start, end }) => start <= port && port <= end)) &&
      isAbout(candidate, isCluster(packet) ? 'pod' : peer),
  );
  const fallback = direction === 'egress' ? policy.default_egress : policy.default_ingress;
  return (rule?.action ?? fallback) === 'allow';
}

/** Pods and resolvers of the cluster. */
export function isCluster({ direction, peer, port }: Packet): boolean {
  return peer === 'pod' || (direction === 'egress' && environment.resolvers.includes(peer) && port === 53);
}

/** Some policy can open it. */
export function isOpen(packet: Packet): boolean {
  const { direction, peer, port } = packet;
  if (isCluster(packet)) return direction === 'ingress' || port === 53;
  const isMetadata = direction === 'egress' && inGroup(peer, 'metadata');
  return !isSubnetOfAny(peer, environment.clusterCidrs) && !isMetadata;
}

function isAbout({ destination, action }: Rule, peer: string): boolean {
  if (destination === 'any') return true;
  if ('cidr' in destination) return isInBlock(destination.cidr, action, peer);
  if (!('group' in destination)) return false;
  if (peer === 'pod') return destination.group === 'host';
  return destination.group !== 'host' && inGroup(peer, destination.group);
}

/** A denied block includes the Pods when it has some of their addresses. */
export function isInBlock(cidr: string, action: Rule['action'], peer: string): boolean {
  if (peer !== 'pod') return isSubnetOfAny(peer, [cidr]);
  return action === 'deny' && ['0.0.0.0/0', '10.1.0.0/16'].includes(cidr);
}

function inGroup(
  peer: string,
  group: Exclude<Extract<Rule['destination'], { group: string }>['group'], 'host'>,
) {
  const isMetadata = isSubnetOfAny(peer, [...GROUPS.metadata.v4, ...GROUPS.metadata.v6]);
  if (group === 'metadata') return isMetadata;
  if (group === 'public') return !isSubnetOfAny(peer, [...SPECIAL.v4, ...SPECIAL.v6]);
  return !isMetadata && isSubnetOfAny(peer, [...GROUPS[group].v4, ...GROUPS[group].v6]);
}
