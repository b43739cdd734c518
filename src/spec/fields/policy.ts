import { isCidr } from '../../lib/cidr.js';
import { canonicalName } from '../../network-policy/domains.js';
import { guardedGroupOf, opensPrivate } from '../../network-policy/guarded-groups.js';
import {
  DESTINATION_FORMS_TEXT,
  DESTINATION_KEYS,
  type NetworkPolicy,
  type Rule,
} from '../../network-policy/schema.js';
import type { Requirement } from '../field.js';
import { refuse } from '../refuse.js';
import { MAX_DOMAIN, MOST } from '../size-limits.js';

export function checkPolicy({ rules = [] }: NetworkPolicy): void {
  if (rules.length > MOST.rules) {
    refuse(
      'network.policy.rules',
      `a policy has at most ${MOST.rules} rules, and this one has ${rules.length}`,
    );
  }
  for (const [index, rule] of rules.entries()) {
    const { destination, ports = [], protocols = [] } = rule;
    const field = `network.policy.rules[${index}]`;
    if (ports.length > MOST.ports)
      refuse(`${field}.ports`, `a rule has at most ${MOST.ports} ranges of ports`);
    if (protocols.length > MOST.protocols) {
      refuse(`${field}.protocols`, 'a rule names each protocol at most once');
    }
    if (typeof destination === 'object') checkDomain(destination, `${field}.destination`);
    if (typeof destination === 'object') checkDestinationKeys(destination, `${field}.destination`);
    if (typeof destination === 'object' && 'cidr' in destination && !isCidr(destination.cidr)) {
      refuse(`${field}.destination.cidr`, 'cidr must be an IP address or a CIDR block, such as 10.0.0.0/8');
    }
    const reversed = ports.findIndex(({ start, end }) => start > end);
    if (reversed !== -1) refuse(`${field}.ports[${reversed}]`, 'a port range must not end before it starts');
    if (ports.length > 0 && protocols.some((protocol) => protocol.startsWith('icmp'))) {
      refuse(`${field}.ports`, 'only tcp and udp have ports: make a rule of its own for icmpv4 and icmpv6');
    }
    if (typeof destination === 'object' && 'cidr' in destination) {
      const foreign = destination.cidr.includes(':') ? 'icmpv4' : 'icmpv6';
      if (protocols.length > 0 && protocols.every((protocol) => protocol === foreign)) {
        refuse(`${field}.protocols`, `${foreign} never goes to ${destination.cidr}`);
      }
    }
  }
}

function checkDomain(destination: object, field: string): void {
  for (const [key, value] of Object.entries(destination)) {
    if (key.startsWith('domain') && String(value).length > MAX_DOMAIN) {
      refuse(`${field}.${key}`, `a domain has at most ${MAX_DOMAIN} characters`);
    }
    if (!key.startsWith('domain') || canonicalName(String(value)) !== undefined) continue;
    const advice = String(value).startsWith('*.')
      ? `use "domain_suffix": "${String(value).slice(2)}", which also has the domain itself`
      : 'a domain has letters, digits, "-" and "." only, such as api.example.com';
    refuse(`${field}.${key}`, advice);
  }
}

/** The policy compiler reads one key, so a second one would have no effect. */
function checkDestinationKeys(destination: object, field: string): void {
  const keys = Object.keys(destination);
  const unknown = keys.find((key) => !DESTINATION_KEYS.includes(key));
  if (unknown !== undefined) {
    const message = `there is no destination by "${unknown}"; there are ${DESTINATION_FORMS_TEXT}, and "any"`;
    refuse(`${field}.${unknown}`, message);
  }
  if (keys.length > 1) {
    refuse(field, `a destination has one key, not ${keys.join(' and ')}: make a rule for each`);
  }
}

/** The abilities that a policy needs beside `network_policy`. */
export function policyRequirements({ rules = [] }: NetworkPolicy): (Requirement | false)[] {
  return rules.flatMap((rule, index) => [
    domainRequirement(rule, index),
    guardedRequirement(rule, index),
    ...trafficRequirements(rule, index),
  ]);
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
    remedy: `the operator opens ${group === 'host' ? 'it' : 'them'} with --docker-allow ${group} or --microvm-allow ${group}`,
  };
}
