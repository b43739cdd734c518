import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isSubnetOfAny } from '../../src/lib/cidr.js';
import { ADDRESS_SETS, targetOf, type AddressSetName } from '../../src/network-policy/destination.js';
import { GUARDED_GROUPS, guardedGroupOf, opensPrivate } from '../../src/network-policy/guarded-groups.js';
import { blocksEverything, defaultFor, rulesFor } from '../../src/network-policy/order.js';
import type { Action, NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import { DNS_PORT, isOnlyDns, matches } from '../../src/network-policy/traffic.js';
import * as docker from '../support/docker-policy-oracle.js';
import * as kubernetes from '../support/kubernetes-policy-oracle.js';

/** The other end of a packet. Engines know the addresses of the host and of resolvers. */
interface Peer {
  host: boolean;
  isIn: (cidr: string, action: Action) => boolean;
  isInSet: (name: AddressSetName) => boolean;
  /** A resolver that is asked by DNS counts for the host, but stays a public address. */
  resolver?: boolean;
}
interface Packet {
  direction: 'egress' | 'ingress';
  protocol: 'tcp' | 'udp';
  port: number;
  peer: Peer;
}

/** The verdict by the parts of `src/network-policy` together. */
function decide(policy: NetworkPolicy, { direction, protocol, port, peer }: Packet): Action {
  const rule = rulesFor(policy, direction).find(
    (candidate) => matches(candidate, protocol, { start: port, end: port }) && includes(candidate, peer),
  );
  return rule?.action ?? defaultFor(policy, direction);
}

function includes({ destination, action }: Rule, peer: Peer): boolean {
  const target = targetOf(destination);
  if (target.kind === 'any') return true;
  if (target.kind === 'block') return peer.isIn(target.cidr, action);
  if (target.kind === 'host') return peer.host || peer.resolver === true;
  if (peer.host || (peer.resolver && target.within !== undefined)) return false;
  const isWithin = target.within === undefined || peer.isInSet(target.within);
  return isWithin && !(target.without !== undefined && peer.isInSet(target.without));
}

function isInSet(address: string, name: AddressSetName): boolean {
  return isSubnetOfAny(address, [...ADDRESS_SETS[name].v4, ...ADDRESS_SETS[name].v6]);
}

test('the meaning of a policy is the verdict that the rules of the Docker engine give', () => {
  const open = ['host', 'metadata'] as const;
  fc.assert(
    fc.property(docker.policy, docker.packet, (policy, packet) => {
      const { way: direction, peer: address, protocol, port } = packet;
      const groups = docker.WHAT[address]!;
      fc.pre(!groups.includes('neighbour'));
      const peer: Peer = {
        host: groups.includes('host'),
        resolver: direction === 'egress' && port === DNS_PORT && groups.includes('resolver'),
        isIn: (cidr) => docker.contains(cidr, address),
        isInSet: (name) => isInSet(address, name),
      };
      const decided = decide(policy, { direction, protocol, port, peer });
      expect(decided).toBe(docker.verdict(policy, packet, open));
    }),
    { numRuns: 2_000 },
  );
});

test('the meaning of a policy is the verdict that a NetworkPolicy of the cluster gives', () => {
  fc.assert(
    fc.property(kubernetes.policies, kubernetes.packets, (policy, packet) => {
      const { direction, peer: address, protocol, port } = packet;
      fc.pre(kubernetes.isOpen(packet));
      const host = kubernetes.isCluster(packet);
      const peer: Peer = {
        host,
        isIn: (cidr, action) => kubernetes.isInBlock(cidr, action, host ? 'pod' : address),
        isInSet: (name) => isInSet(address, name),
      };
      const decided = decide(policy, { direction, protocol, port, peer });
      expect(decided === 'allow').toBe(kubernetes.isAllowed(policy, packet));
    }),
    { numRuns: 2_000 },
  );
});

test('a policy blocks everything if it allows no packet, whatever it denies', () => {
  expect(blocksEverything({})).toBe(true);
  expect(blocksEverything({ default_egress: 'deny', default_ingress: 'deny', rules: [] })).toBe(true);
  const denial: Rule = { direction: 'any', destination: 'any', action: 'deny' };
  expect(blocksEverything({ rules: [denial] })).toBe(true);
  expect(blocksEverything({ default_ingress: 'allow' })).toBe(false);
  expect(blocksEverything({ rules: [{ ...denial, action: 'allow' }] })).toBe(false);
  fc.assert(
    fc.property(docker.policy, docker.packet, (policy, packet) => {
      if (blocksEverything(policy))
        expect(docker.verdict(policy, packet, GUARDED_GROUPS), JSON.stringify(packet)).toBe('deny');
    }),
  );
});

test('only rules for DNS, and for nothing else, are only for DNS', () => {
  const dns = { start: 53, end: 53 };
  expect(isOnlyDns({ ports: [dns] })).toBe(true);
  expect(isOnlyDns({ ports: [dns], protocols: ['udp'] })).toBe(true);
  expect(isOnlyDns({})).toBe(false);
  expect(isOnlyDns({ protocols: ['udp'] })).toBe(false);
  expect(isOnlyDns({ ports: [dns, { start: 53, end: 54 }] })).toBe(false);
  expect(isOnlyDns({ ports: [dns], protocols: ['tcp', 'icmpv4'] })).toBe(false);
});

test.each<{ rule: Partial<Rule>; opened: string | undefined }>([
  { rule: { destination: { group: 'host' } }, opened: 'host by group' },
  { rule: { destination: { group: 'metadata' } }, opened: 'metadata by group' },
  { rule: { destination: { cidr: '169.254.169.254' } }, opened: 'metadata by cidr' },
  { rule: { destination: { cidr: '169.254.0.0/16' } }, opened: undefined },
  { rule: { destination: 'any' }, opened: undefined },
  { rule: { destination: { group: 'host' }, action: 'deny' }, opened: undefined },
  { rule: { destination: { group: 'host' }, direction: 'ingress' }, opened: undefined },
  { rule: { destination: { group: 'host' }, ports: [{ start: 53, end: 53 }] }, opened: undefined },
])('an allowance for $rule.destination opens the guarded group $opened', ({ rule, opened }) => {
  const found = guardedGroupOf({ direction: 'egress', destination: 'any', action: 'allow', ...rule });
  expect(found && `${found.group} by ${found.key}`).toBe(opened);
});

test('private addresses are opened by their group and by blocks inside', () => {
  const allow = (destination: Rule['destination']) =>
    opensPrivate({ direction: 'any', destination, action: 'allow' });
  expect(allow({ group: 'private' })).toBe(true);
  expect(allow({ cidr: '10.2.0.0/16' })).toBe(true);
  expect(allow({ cidr: '8.0.0.0/6' })).toBe(false);
  expect(allow('any')).toBe(false);
});
