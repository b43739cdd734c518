import { guardedGroupOf, opensPrivate } from '../network-policy/guarded-groups.js';
import { blocksEverything } from '../network-policy/order.js';
import { DESTINATION_FORMS_TEXT, type Rule } from '../network-policy/schema.js';
import type { Requirement } from './requirement.js';
import type { NetworkRequest } from './network-schema.js';

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
function trafficRequirements(rule: Rule, index: number): (Requirement | false)[] {
  const { action, ports = [], protocols = [] } = rule;
  const field = `network.policy.rules[${index}]`;
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
    opensPrivate(rule) && {
      capability: 'network_private',
      field: `${field}.destination`,
      what: 'open private addresses, which may be those of the cluster',
      remedy: 'the operator names the addresses of the cluster with --kubernetes-cluster-cidrs',
    },
  ];
}

function guardedRequirement(rule: Rule, index: number): Requirement | false {
  const opened = guardedGroupOf(rule);
  if (!opened) return false;
  const { group, key } = opened;
  return {
    capability: `network_${group}`,
    field: `network.policy.rules[${index}].destination.${key}`,
    what: `open ${group === 'host' ? 'the host' : 'metadata services'} to sandboxes`,
    remedy: `on Docker the operator opens ${group === 'host' ? 'it' : 'them'} with --docker-allow ${group}`,
  };
}
