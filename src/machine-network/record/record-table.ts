import { parseJson } from '../../lib/json.js';
import { GATED_MARK } from '../gateway/kernel-names.js';
import { GATEWAY_ADDRESS } from '../../gateway/protocol.js';
import type { Carrier } from '../../network-policy/traffic.js';
import { AROUND_PROGRAMS, type Position } from '../position.js';

export const RECORD_TABLE = 'sandkeep_record';
/** Destinations that are told apart at once. An entry that is not used for its time-out leaves. */
const MOST = 1_024;
const TIMEOUT = '5m';
const FAMILIES = [
  { digit: '4', type: 'ipv4_addr', protocol: 'ip' },
  { digit: '6', type: 'ipv6_addr', protocol: 'ip6' },
] as const;

/**
 * An nftables script with counters of the destinations of a sandbox. It decides nothing. The packets that the chain
 * `leaving` of the policy refuses pass `trying`, which is before it, and no later chain. Replies to connections from
 * outside have the direction `reply`, so their ports are no destinations. The gateway reports its connections itself.
 */
export function recordTable({ counted }: Position = AROUND_PROGRAMS): string {
  const head = (name: keyof Position['counted']) => {
    const [hook, other] = counted[name];
    return `    type filter hook ${hook}; policy accept;\n    ${other} return`;
  };
  const sets = ['tried', 'opened', 'gated', 'sent', 'received'].flatMap((name) =>
    FAMILIES.map(
      ({ digit, type }) =>
        `  set ${name}${digit} { type ${type} . inet_proto . inet_service; size ${MOST}; flags dynamic,timeout; timeout ${TIMEOUT}; counter; }`,
    ),
  );
  const count = (name: string, end: 'd' | 's', condition = '', verdict = '') =>
    FAMILIES.map(({ digit, protocol }) =>
      `    meta l4proto { tcp, udp } ${condition} update @${name}${digit} { ${protocol} ${end}addr . meta l4proto . th ${end}port } ${verdict}`.trimEnd(),
    ).join('\n');
  return `table inet ${RECORD_TABLE}
delete table inet ${RECORD_TABLE}
table inet ${RECORD_TABLE} {
${sets.join('\n')}
  counter more { }
  chain trying {
${head('trying')}
    ip daddr ${GATEWAY_ADDRESS} return
    ct direction reply return
${count('tried', 'd', 'ct state new')}
  }
  chain sending {
${head('sending')}
    ip daddr ${GATEWAY_ADDRESS} return
    ct direction reply return
${count('gated', 'd', `ct mark ${GATED_MARK} ct state new`)}
    ct mark ${GATED_MARK} return
${count('opened', 'd', 'ct state new')}
${count('sent', 'd', '', 'accept')}
    meta l4proto { tcp, udp } counter name more
  }
  chain receiving {
${head('receiving')}
    ip saddr ${GATEWAY_ADDRESS} return
    ct direction original return
    ct mark ${GATED_MARK} return
${count('received', 's')}
  }
}
`;
}

export interface Peer {
  address: string;
  protocol: Carrier;
  port: number;
}

/** By peer, since the entry was made. */
export type Counts = ReadonlyMap<string, Peer & { packets: number; bytes: number }>;

export interface Reading {
  tried: Counts;
  opened: Counts;
  gated: Counts;
  sent: Counts;
  received: Counts;
  /** Bytes to destinations beyond the most. */
  moreBytes: number;
}

interface Listed {
  set?: { name: string; elem?: { elem?: Element }[] };
  counter?: { bytes: number };
}
interface Element {
  val?: { concat?: unknown[] };
  counter?: { packets: number; bytes: number };
}

/** `json`: of `nft -j list table`. */
export function parseReading(json: string): Reading {
  const { nftables = [] } = (parseJson(json) ?? {}) as { nftables?: Listed[] };
  const of = (name: string): Counts => {
    const sets = nftables.flatMap(({ set }) => (set && set.name.replace(/[46]$/, '') === name ? [set] : []));
    return new Map(sets.flatMap(({ elem = [] }) => elem.flatMap(({ elem: element }) => entryOf(element))));
  };
  const moreBytes = nftables.find(({ counter }) => counter !== undefined)?.counter?.bytes ?? 0;
  return {
    tried: of('tried'),
    opened: of('opened'),
    gated: of('gated'),
    sent: of('sent'),
    received: of('received'),
    moreBytes,
  };
}

function entryOf({ val, counter }: Element = {}): [string, Peer & { packets: number; bytes: number }][] {
  const [address, protocol, port] = val?.concat ?? [];
  if (typeof address !== 'string' || (protocol !== 'tcp' && protocol !== 'udp')) return [];
  if (typeof port !== 'number' || counter === undefined) return [];
  const { packets, bytes } = counter;
  return [[`${protocol} ${address} ${port}`, { address, protocol, port, packets, bytes }]];
}
