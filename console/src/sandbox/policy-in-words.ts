import type { Destination, NetworkPolicy, Rule } from '../lib/api-types';

/** The outgoing traffic that a policy decides about, a sentence for each rule, in their order. */
export function policyInWords(policy: NetworkPolicy | null | undefined): string[] {
  if (policy == null) return ['Public addresses are open. Everything else is closed.'];
  const rules = (policy.rules ?? []).map(
    (rule, position) =>
      `${position}. ${ACTIONS[rule.action]} ${directionOf(rule)}${destinationOf(rule.destination)}${trafficOf(rule)}`,
  );
  const { default_egress: out = 'deny', default_ingress: into = 'deny' } = policy;
  return [
    ...rules,
    `Otherwise: ${out === 'allow' ? 'allow' : 'deny'} what goes out, and ${into === 'allow' ? 'allow' : 'deny'} what comes in.`,
  ];
}

const ACTIONS = { allow: 'Allow', deny: 'Deny' } as const;

function directionOf({ direction }: Rule): string {
  if (direction === 'ingress') return 'traffic from ';
  return direction === 'any' ? 'traffic from and to ' : '';
}

function destinationOf(destination: Destination): string {
  if (destination === 'any') return 'every address';
  if ('cidr' in destination) return destination.cidr;
  if ('domain' in destination) return destination.domain;
  if ('domain_suffix' in destination) return `${destination.domain_suffix} and every name below it`;
  return GROUPS[destination.group];
}

const GROUPS = {
  public: 'public addresses',
  loopback: 'loopback addresses',
  private: 'private addresses',
  link_local: 'link-local addresses',
  metadata: 'the metadata service of the cloud',
  multicast: 'multicast addresses',
  host: 'the machine of the sandbox',
} as const;

function trafficOf({ ports = [], protocols = [] }: Rule): string {
  const ranges = ports.map(({ start, end }) => (start === end ? `${start}` : `${start} to ${end}`));
  const names = protocols.map((protocol) =>
    protocol.replace('icmpv', 'ICMPv').replace(/^(tcp|udp)$/, (word) => word.toUpperCase()),
  );
  const on =
    ranges.length === 0
      ? ''
      : ` on ${ranges.length === 1 && !ranges[0]!.includes(' ') ? 'port' : 'ports'} ${ranges.join(', ')}`;
  return `${on}${names.length === 0 ? '' : ` by ${names.join(', ')}`}`;
}
