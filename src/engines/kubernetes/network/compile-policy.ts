import type { V1NetworkPolicyPeer, V1NetworkPolicyPort, V1NetworkPolicySpec } from '@kubernetes/client-node';
import { ADDRESS_SETS, targetOf, type AddressSetName } from '../../../network-policy/destination.js';
import { defaultFor, rulesFor } from '../../../network-policy/order.js';
import type { Direction, NetworkPolicy, Rule } from '../../../network-policy/schema.js';
import {
  CARRIERS,
  DNS_PORT,
  matches,
  type Carrier,
  type PortRange,
} from '../../../network-policy/traffic.js';
import { StartRefusedError } from '../../../engine/runtime.js';
import { SANDBOX_LABEL } from '../names.js';
import { AddressSet } from './address-set.js';

export type Family = 'v4' | 'v6';

export interface PolicyEnvironment {
  families: readonly Family[];
  /** CIDR blocks of the Pods, nodes and Services of the cluster. No policy opens them. */
  clusterCidrs: readonly string[];
  resolvers: readonly string[];
}

interface Traffic extends PortRange {
  protocol: Carrier | 'other';
}
interface Grant {
  peers: AddressSet;
  /** Empty: all traffic. */
  ports: V1NetworkPolicyPort[];
}

const FIRST_PORT = 1;
const LAST_PORT = 65_535;
const OTHER: Traffic = { protocol: 'other', start: FIRST_PORT, end: LAST_PORT };
const EVERYWHERE = AddressSet.of(['0.0.0.0/0', '::/0']);
const METADATA = addressesOf('metadata');
/** Ranges of ports, times rules. A policy at this limit takes half a second. */
const MOST_STEPS = 4_096;

/**
 * Expresses the rules as allowances, because a NetworkPolicy has neither an order nor refusals. For each direction and
 * each range of ports, `allowedPeers` walks the rules in their order and keeps the addresses that end up allowed.
 * Protocols other than TCP and UDP pass to and from addresses of which every port is open, since a NetworkPolicy cannot
 * name them.
 */
export function compilePolicy(
  policy: NetworkPolicy,
  environment: PolicyEnvironment,
): Pick<V1NetworkPolicySpec, 'ingress' | 'egress'> {
  const compiled = (direction: Direction) =>
    grantsOf(policy, direction, environment)
      .map(({ peers, ports }) => ({
        peers: peersOf(peers, direction, environment),
        ...(ports.length === 0 ? {} : { ports }),
      }))
      .filter(({ peers }) => peers.length > 0);
  return {
    ingress: compiled('ingress').map(({ peers, ...rest }) => ({ _from: peers, ...rest })),
    egress: compiled('egress').map(({ peers, ...rest }) => ({ to: peers, ...rest })),
  };
}

/** Three levels: open for all traffic, for a protocol, for ranges of ports. */
function grantsOf(policy: NetworkPolicy, direction: Direction, environment: PolicyEnvironment): Grant[] {
  const rules = rulesFor(policy, direction);
  const allowed = (traffic: Traffic) => allowedPeers(policy, rules, direction, traffic, environment);
  const ranges = portRanges(rules);
  if (ranges.length * rules.length > MOST_STEPS) {
    throw new StartRefusedError(
      'the network policy has too many rules with different ports for a NetworkPolicy',
    );
  }
  const carriers = CARRIERS.map((protocol) => {
    const parts = ranges.map((range) => ({ range, peers: allowed({ protocol, ...range }) }));
    return { protocol, parts, common: common(parts.map(({ peers }) => peers)) };
  });
  const always = common([allowed(OTHER), ...carriers.map((carrier) => carrier.common)]);
  const grants = carriers.flatMap(({ protocol, parts, common: base }): Grant[] => [
    { peers: base.minus(always), ports: [{ protocol: protocol.toUpperCase() }] },
    // Blocks and Pods apart: egress reaches Pods on port 53 only, which would split the ranges of every block.
    ...[EVERYWHERE, AddressSet.CLUSTER].flatMap((part) =>
      mergePorts(
        protocol,
        parts.map(({ range, peers }) => ({ range, peers: peers.minus(base).intersect(part) })),
      ),
    ),
  ]);
  return [{ peers: always, ports: [] }, ...grants].filter(({ peers }) => !peers.isEmpty);
}

function common(sets: readonly AddressSet[]): AddressSet {
  return sets.reduce((one, other) => one.intersect(other));
}

/** Ranges in which every rule treats all ports alike. */
function portRanges(rules: readonly Rule[]): PortRange[] {
  const bounds = rules.flatMap(({ ports = [] }) => ports.flatMap(({ start, end }) => [start, end + 1]));
  const starts = [...new Set([FIRST_PORT, DNS_PORT, DNS_PORT + 1, ...bounds])]
    .filter((port) => port >= FIRST_PORT && port <= LAST_PORT)
    .toSorted((a, b) => a - b);
  return starts.map((start, index) => ({ start, end: (starts[index + 1] ?? LAST_PORT + 1) - 1 }));
}

function mergePorts(protocol: string, parts: readonly { range: PortRange; peers: AddressSet }[]): Grant[] {
  const merged: { start: number; end: number; peers: AddressSet }[] = [];
  for (const { range, peers } of parts) {
    const last = merged.at(-1);
    if (last?.peers.equals(peers)) last.end = range.end;
    else merged.push({ ...range, peers });
  }
  const grants: Grant[] = [];
  for (const { start, end, peers } of merged) {
    const port = {
      protocol: protocol.toUpperCase(),
      port: start,
      ...(end === start ? {} : { endPort: end }),
    };
    const same = grants.find((grant) => grant.peers.equals(peers));
    if (same) same.ports.push(port);
    else grants.push({ peers, ports: [port] });
  }
  return grants;
}

/**
 * The first rule that matches decides, so each rule takes its peers out of the undecided ones. The default gets those
 * that are left. The guards come last, and so win over every rule. No policy opens the blocks of the cluster or the
 * metadata services. Egress reaches Pods of the cluster for DNS only.
 */
function allowedPeers(
  policy: NetworkPolicy,
  rules: readonly Rule[],
  direction: Direction,
  traffic: Traffic,
  environment: PolicyEnvironment,
): AddressSet {
  const cluster = AddressSet.of(environment.clusterCidrs);
  let undecided = everything(environment);
  const allowed: AddressSet[] = [];
  for (const rule of rules.filter((candidate) => matches(candidate, traffic.protocol, traffic))) {
    const peers = destinationOf(rule, cluster);
    if (rule.action === 'allow') allowed.push(undecided.intersect(peers));
    undecided = undecided.minus(peers);
  }
  if (defaultFor(policy, direction) === 'allow') allowed.push(undecided);
  const open = AddressSet.union(allowed).minus(cluster);
  if (direction === 'ingress') return open;
  const isDns = traffic.protocol !== 'other' && traffic.start === DNS_PORT && traffic.end === DNS_PORT;
  return open.minus(isDns ? METADATA : METADATA.withCluster(true));
}

function everything({ families }: PolicyEnvironment): AddressSet {
  const blocks = families.map((family) => (family === 'v4' ? '0.0.0.0/0' : '::/0'));
  return AddressSet.of(blocks).withCluster(true);
}

/** A block that is denied includes the cluster when it has some of its addresses; one that is allowed never does. */
function destinationOf({ destination, action }: Rule, cluster: AddressSet): AddressSet {
  const target = targetOf(destination);
  switch (target.kind) {
    case 'any':
      return EVERYWHERE.withCluster(true);
    case 'block': {
      const block = AddressSet.of([target.cidr]);
      const isDenied = action === 'deny' && !block.intersect(cluster).isEmpty;
      return block.withCluster(isDenied);
    }
    case 'host':
      return AddressSet.CLUSTER;
    case 'set': {
      const { within, without } = target;
      const addresses = within ? addressesOf(within) : EVERYWHERE;
      return without ? addresses.minus(addressesOf(without)) : addresses;
    }
  }
}

function addressesOf(name: AddressSetName): AddressSet {
  const { v4, v6 } = ADDRESS_SETS[name];
  return AddressSet.of([...v4, ...v6]);
}

/** A selector, because the addresses of Pods may not match blocks, and blocks cannot leave sandboxes out. */
function peersOf(
  { hasCluster, blocks }: AddressSet,
  direction: Direction,
  { resolvers }: PolicyEnvironment,
): V1NetworkPolicyPeer[] {
  const pods: V1NetworkPolicyPeer = {
    namespaceSelector: {},
    podSelector: { matchExpressions: [{ key: SANDBOX_LABEL, operator: 'DoesNotExist' }] },
  };
  const services = hasCluster && direction === 'egress' ? AddressSet.of(resolvers).blocks : [];
  return [...(hasCluster ? [pods] : []), ...[...services, ...blocks].map((cidr) => ({ ipBlock: { cidr } }))];
}
