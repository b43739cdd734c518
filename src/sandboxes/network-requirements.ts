import { isSubnetOfAny } from '../lib/cidr.js';
import { GROUPS } from '../lib/special-addresses.js';
import { blocksEverything, isOnlyDns, type GuardedGroup } from '../runtimes/docker/network/compile-policy.js';
import type { Requirement } from './requirement.js';
import { DESTINATION_FORMS_TEXT, type NetworkPolicy, type NetworkRequest } from './spec/network-schema.js';

type Rule = NonNullable<NetworkPolicy['rules']>[number];

const NETWORK =
  'the operator chooses a cluster that enforces NetworkPolicy, or vouches for its network with --kubernetes-network trusted';

export function networkRequirements({
  enabled = true,
  policy,
  max_connections,
  max_udp_connections,
  secrets,
  ports,
  tls,
}: NetworkRequest): Requirement[] {
  const requirements: (Requirement | false)[] = [
    enabled && !(policy && blocksEverything(policy))
      ? {
          capability: 'network',
          field: 'network.enabled',
          what: 'give a network to sandboxes',
          remedy: NETWORK,
        }
      : {
          capability: 'network_off',
          field: enabled ? 'network.policy' : 'network.enabled',
          what: 'cut sandboxes off',
          remedy: NETWORK,
        },
    max_connections != null && {
      capability: 'connection_limit',
      field: 'network.max_connections',
      what: 'limit the number of connections',
    },
    (max_udp_connections ?? 0) > 0 && {
      capability: 'connection_limit',
      field: 'network.max_udp_connections',
      what: 'limit the number of UDP flows',
    },
    (secrets?.entries ?? []).length > 0 && {
      capability: 'secrets',
      field: 'network.secrets',
      what: 'inject secrets',
    },
    (ports ?? []).length > 0 && {
      capability: 'published_ports',
      field: 'network.ports',
      what: 'publish ports on the host',
    },
    tls != null &&
      tls.enabled !== false &&
      Object.keys(tls).length > 0 && {
        capability: 'tls_interception',
        field: 'network.tls',
        what: 'look into encrypted connections',
      },
  ];
  // A policy that allows nothing needs no network.
  if (policy != null && enabled && !blocksEverything(policy)) {
    requirements.push(
      { capability: 'network_policy', field: 'network.policy', what: 'enforce a network policy' },
      ...(policy.rules ?? []).flatMap((rule, index) => [
        domainRequirement(rule, index),
        guardedRequirement(rule, index),
        ...trafficRequirements(rule, index),
      ]),
    );
  }
  return requirements.filter((requirement) => requirement !== false);
}

function domainRequirement({ destination }: Rule, index: number): Requirement | false {
  if (typeof destination === 'string') return false;
  const kind = (['domain', 'domain_suffix'] as const).find((key) => key in destination);
  return (
    kind !== undefined && {
      capability: 'network_domains',
      field: `network.policy.rules[${index}].destination.${kind}`,
      what: 'tell domains apart',
      remedy: `a destination is "any" or one of ${DESTINATION_FORMS_TEXT}; name it by cidr or group here`,
    }
  );
}

/** The limits of a NetworkPolicy. */
function trafficRequirements(
  { action, destination, ports = [], protocols = [] }: Rule,
  index: number,
): (Requirement | false)[] {
  const field = `network.policy.rules[${index}]`;
  const isOpened =
    action === 'allow' &&
    typeof destination !== 'string' &&
    (('cidr' in destination && isSubnetOfAny(destination.cidr, PRIVATE)) ||
      ('group' in destination && destination.group === 'private'));
  return [
    protocols.some((protocol) => protocol.startsWith('icmp')) && {
      capability: 'network_icmp',
      field: `${field}.protocols`,
      what: 'filter icmp apart from other traffic',
    },
    // A refused port leaves a range below it and one above.
    ports.some(({ start, end }) => start !== end || action === 'deny') && {
      capability: 'network_port_ranges',
      field: `${field}.ports`,
      what: 'open ranges of ports',
      remedy: 'allow single ports, or use a cluster whose network supports endPort in a NetworkPolicy',
    },
    isOpened && {
      capability: 'network_private',
      field: `${field}.destination`,
      what: 'open private addresses, which may be those of the cluster',
      remedy: 'the operator names the addresses of the cluster with --kubernetes-cluster-cidrs',
    },
  ];
}

const PRIVATE = [...GROUPS.private.v4, ...GROUPS.private.v6];
const METADATA = [...GROUPS.metadata.v4, ...GROUPS.metadata.v6];

/**
 * A rule for addresses that the operator blocks has no effect. A rule for more addresses, such as `any`, affects the others.
 * DNS is always open.
 */
function guardedRequirement(rule: Rule, index: number): Requirement | false {
  const { direction, destination, action } = rule;
  if (action !== 'allow' || direction === 'ingress' || typeof destination === 'string' || isOnlyDns(rule))
    return false;
  const field = `network.policy.rules[${index}].destination`;
  const requirement = (group: GuardedGroup, key: string): Requirement => ({
    capability: `network_${group}`,
    field: `${field}.${key}`,
    what: `open ${group === 'host' ? 'the host' : 'metadata services'} to sandboxes`,
    remedy: `on Docker the operator opens ${group === 'host' ? 'it' : 'them'} with --docker-allow ${group}`,
  });
  if ('cidr' in destination)
    return isSubnetOfAny(destination.cidr, METADATA) && requirement('metadata', 'cidr');
  if (!('group' in destination)) return false;
  const { group } = destination;
  return (group === 'host' || group === 'metadata') && requirement(group, 'group');
}
