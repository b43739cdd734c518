import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isSubnetOfAny } from '../../src/lib/cidr.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import { AddressSet } from '../../src/engines/kubernetes/network/address-set.js';
import { compilePolicy } from '../../src/engines/kubernetes/network/compile-policy.js';
import {
  environment,
  isAllowed,
  packets,
  policies,
  type Packet,
} from '../support/kubernetes-policy-oracle.js';

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
    direction: 'egress',
    protocols: ['tcp'],
    action: 'allow',
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
    direction: 'egress',
    destination: 'any',
    action: 'allow',
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
