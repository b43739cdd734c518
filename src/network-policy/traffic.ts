import type { Rule } from './schema.js';

export const DNS_PORT = 53;

/** The protocols with ports. */
export const CARRIERS = ['tcp', 'udp'] as const;
export type Carrier = (typeof CARRIERS)[number];

type Selection = Pick<Rule, 'protocols' | 'ports'>;
export type PortRange = NonNullable<Rule['ports']>[number];

export interface Traffic {
  carriers: readonly Carrier[];
  /** The ports of the receiving side. Empty: every port. */
  ports: readonly PortRange[];
  icmp: readonly ('icmpv4' | 'icmpv6')[];
}

/**
 * The traffic that a rule matches, by its protocols and ports. A rule without either matches every protocol, and one
 * with ports alone matches those protocols that have ports.
 */
export function trafficOf({ protocols = [], ports = [] }: Selection): Traffic | 'everything' {
  if (protocols.length === 0)
    return ports.length === 0 ? 'everything' : { carriers: CARRIERS, ports, icmp: [] };
  return {
    carriers: CARRIERS.filter((carrier) => protocols.includes(carrier)),
    ports,
    icmp: ports.length > 0 ? [] : (['icmpv4', 'icmpv6'] as const).filter((kind) => protocols.includes(kind)),
  };
}

/** Whether a rule matches all of the given traffic. `other`: every protocol without ports. */
export function matches(rule: Selection, protocol: Carrier | 'other', { start, end }: PortRange): boolean {
  const traffic = trafficOf(rule);
  if (traffic === 'everything') return true;
  if (protocol === 'other' || !traffic.carriers.includes(protocol)) return false;
  return (
    traffic.ports.length === 0 || traffic.ports.some((range) => range.start <= start && end <= range.end)
  );
}

/** The protocols by which a rule matches DNS. */
export function dnsCarriersOf(rule: Selection): Carrier[] {
  return CARRIERS.filter((carrier) => matches(rule, carrier, { start: DNS_PORT, end: DNS_PORT }));
}

/** Whether a rule matches DNS and nothing else. */
export function isOnlyDns({ protocols = [], ports = [] }: Selection): boolean {
  const onPort = ports.length > 0 && ports.every(({ start, end }) => start === DNS_PORT && end === DNS_PORT);
  return onPort && protocols.every((protocol) => CARRIERS.some((carrier) => carrier === protocol));
}
