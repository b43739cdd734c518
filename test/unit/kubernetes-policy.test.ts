import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isSubnetOfAny } from '../../src/lib/cidr.js';
import { GROUPS, SPECIAL } from '../../src/lib/special-addresses.js';
import { AddressSet } from '../../src/runtimes/kubernetes/network/address-set.js';
import {
  compilePolicy,
  type PolicyEnvironment,
} from '../../src/runtimes/kubernetes/network/compile-policy.js';
import type { NetworkPolicy } from '../../src/sandboxes/spec/network-schema.js';

type Rule = NonNullable<NetworkPolicy['rules']>[number];
interface Packet {
  direction: 'egress' | 'ingress';
  /** `pod`: one of the cluster that is no sandbox. */
  peer: string;
  protocol: 'tcp' | 'udp';
  port: number;
}

const environment: PolicyEnvironment = {
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
  ...['pod', '1.2.3.4', '1.2.3.200', '9.9.9.9', '192.168.7.7', '10.1.2.3', '10.96.0.10', '169.254.169.254'],
  ...['169.254.1.1', '224.0.0.5', '2001:4860::8888', 'fd00:ec2::254', 'fd00::1'],
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
const policies: fc.Arbitrary<NetworkPolicy> = fc.record({
  default_egress: fc.constantFrom('allow', 'deny'),
  default_ingress: fc.constantFrom('allow', 'deny'),
  rules: fc.array(rules, { maxLength: 6 }),
});
const packets: fc.Arbitrary<Packet> = fc.record({
  direction: fc.constantFrom('egress', 'ingress'),
  peer: fc.constantFrom(...PEERS),
  protocol: fc.constantFrom('tcp', 'udp'),
  port: fc.constantFrom(...PORTS),
});

test('a compiled policy passes what the first matching rule allows', () => {
  fc.assert(
    fc.property(policies, packets, (policy, packet) => {
      expect(passes(policy, packet)).toBe(isAllowed(policy, packet));
    }),
    { numRuns: 400 },
  );
});

test('rules for single ports need no ranges of ports', () => {
  const rule: Pick<Rule, 'direction' | 'protocols' | 'action'> = {
    ...{ direction: 'egress', protocols: ['tcp'], action: 'allow' },
  };
  const { egress = [] } = compilePolicy(
    {
      default_egress: 'deny',
      rules: [
        { direction: 'egress', destination: { group: 'private' }, action: 'deny' },
        { ...rule, destination: { group: 'public' }, ports: [{ start: 443, end: 443 }] },
        { ...rule, destination: 'any', ports: [{ start: 80, end: 80 }] },
      ],
    },
    environment,
  );
  const ports = egress.flatMap((grant) => grant.ports ?? []);
  expect(ports.length).toBeGreaterThan(0);
  expect(ports.filter(({ endPort }) => endPort !== undefined)).toEqual([]);
});

test('a policy with too many rules with ports is refused', () => {
  const many = Array.from({ length: 100 }, (_, i): Rule => ({
    ...{ direction: 'egress', destination: 'any', action: 'allow' },
    ports: [{ start: 2 * i + 100, end: 2 * i + 100 }],
  }));
  expect(() => compilePolicy({ rules: many }, environment)).toThrow(/too many rules/);
});

test('a set of addresses has as few blocks as there can be', () => {
  const blocks = ['10.0.0.0/25', '10.0.0.128/25', '10.0.0.7', '::/0', '::/0', '255.255.255.255/32'];
  expect(AddressSet.of(blocks).blocks).toEqual(['10.0.0.0/24', '255.255.255.255/32', '::/0']);
  const rest = AddressSet.of(['10.0.0.0/30']).minus(AddressSet.of(['10.0.0.1']));
  expect(rest.blocks).toEqual(['10.0.0.0/32', '10.0.0.2/31']);
});

/** By the order of the rules, as docs/runtimes.md states it. */
function isAllowed(policy: NetworkPolicy, packet: Packet): boolean {
  const { direction, peer, protocol, port } = packet;
  const isCluster =
    peer === 'pod' || (direction === 'egress' && environment.resolvers.includes(peer) && port === 53);
  const isOpen = isCluster
    ? direction === 'ingress' || port === 53
    : !isSubnetOfAny(peer, environment.clusterCidrs) &&
      !(direction === 'egress' && inGroup(peer, 'metadata'));
  if (!isOpen) return false;
  const rule = (policy.rules ?? []).find(
    (candidate) =>
      (candidate.direction === direction || candidate.direction === 'any') &&
      ((candidate.protocols ?? []).length === 0 || candidate.protocols!.includes(protocol)) &&
      ((candidate.ports ?? []).length === 0 ||
        candidate.ports!.some(({ start, end }) => start <= port && port <= end)) &&
      matches(candidate, isCluster ? 'pod' : peer),
  );
  const fallback = direction === 'egress' ? policy.default_egress : policy.default_ingress;
  return (rule?.action ?? fallback) === 'allow';
}

function matches({ destination, action }: Rule, peer: string): boolean {
  if (destination === 'any') return true;
  if ('cidr' in destination) {
    if (peer !== 'pod') return isSubnetOfAny(peer, [destination.cidr]);
    return action === 'deny' && ['0.0.0.0/0', '10.1.0.0/16'].includes(destination.cidr);
  }
  if (!('group' in destination)) return false;
  if (peer === 'pod') return destination.group === 'host';
  return destination.group !== 'host' && inGroup(peer, destination.group);
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

/** As Kubernetes defines a NetworkPolicy. */
function passes(policy: NetworkPolicy, { direction, peer, protocol, port }: Packet): boolean {
  const { ingress = [], egress = [] } = compilePolicy(policy, environment);
  const grants =
    direction === 'ingress'
      ? ingress.map(({ _from: peers = [], ports = [] }) => ({ peers, ports }))
      : egress.map(({ to: peers = [], ports = [] }) => ({ peers, ports }));
  return grants.some(
    ({ peers, ports }) =>
      peers.some(({ ipBlock }) =>
        ipBlock ? peer !== 'pod' && isSubnetOfAny(peer, [ipBlock.cidr]) : peer === 'pod',
      ) &&
      (ports.length === 0 ||
        ports.some(({ protocol: carrier, port: first, endPort }) => {
          if (carrier !== protocol.toUpperCase()) return false;
          return first === undefined || (Number(first) <= port && port <= (endPort ?? Number(first)));
        })),
  );
}
