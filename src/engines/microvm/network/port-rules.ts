import { createHash } from 'node:crypto';
import type { PublishedPort } from '../../../spec/network-schema.js';

/** The ports of the machine that lead to one virtual machine. */
export interface PublishedPorts {
  /** The address of the virtual machine. */
  address: string;
  ports: readonly PublishedPort[];
}

const EVERY_ADDRESS = '0.0.0.0';
const ZONES = 65_535;

/** Whether it needs `route_localnet`: connections of the machine to its loopback addresses lead to its link. */
export function isOnLoopback({ host_bind }: PublishedPort): boolean {
  return host_bind === EVERY_ADDRESS || host_bind.startsWith('127.');
}

/**
 * The chains of the machine that lead the packets of published ports to virtual machines, as parts of an nftables
 * table. `ours`: the name of every link, as nftables matches it. The rules of the sandbox decide about each connection,
 * and see its source.
 *
 * - Loopback addresses lead there for programs of the machine alone. A packet that arrives with such a destination is
 *   translated before the kernel refuses it as a martian, so these rules leave it out. Links with `route_localnet` let
 *   sandboxes send such packets, which the first chain drops.
 * - The kernel translates a connection at its first packet. A client of UDP that sends all the time would reach the
 *   address of an earlier run for ever. So the packets of each run are in a zone of connections of their own.
 * - A sandbox does not reach a published port of another: its packets are not translated, and the last chain refuses
 *   those that arrive at the socket that keeps the port.
 */
export function publishedChains(ours: string, published: readonly PublishedPorts[]): string {
  const all = published.flatMap(({ address, ports }) => ports.map((port) => ({ ...port, address })));
  if (all.length === 0) return '';
  const numbers = new Set(all.map(({ protocol, host_port }) => `${protocol} . ${host_port}`));
  const known = 'meta l4proto { tcp, udp } meta l4proto . th dport @published fib daddr type local';
  const rules = (verdict: (port: (typeof all)[number]) => string) =>
    all.map((port) => `    ${matchOf(port)} ${verdict(port)}\n`).join('');
  return `  set published { type inet_proto . inet_service; elements = { ${[...numbers].join(', ')} }; }
  chain zone {
${rules(({ address }) => `ct original zone set ${zoneOf(address)}`)}  }
  chain translate {
${rules(({ address, guest_port }) => `dnat ip to ${address}:${guest_port}`)}  }
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject
  }
  chain missed {
${rules(() => 'jump refuse')}  }
  chain arriving_zone {
    type filter hook prerouting priority raw; policy accept;
    iifname ${ours} ip daddr 127.0.0.0/8 drop
    iifname ${ours} accept
    ${known} jump zone
  }
  chain calling_zone {
    type filter hook output priority raw; policy accept;
    ${known} jump zone
  }
  chain arriving {
    type nat hook prerouting priority dstnat; policy accept;
    iifname ${ours} accept
    ip daddr 127.0.0.0/8 accept
    ${known} jump translate
  }
  chain calling {
    type nat hook output priority -100; policy accept;
    ${known} jump translate
  }
  chain delivered {
    type filter hook input priority filter - 5; policy accept;
    iifname != "lo" ${known} jump missed
  }
`;
}

function matchOf({ protocol, host_bind, host_port }: PublishedPort): string {
  const at = host_bind === EVERY_ADDRESS ? 'meta nfproto ipv4' : `ip daddr ${host_bind}`;
  return `${at} ${protocol} dport ${host_port}`;
}

/** Another one for each address, which comes back late. A rare collision only keeps connections of an earlier run. */
function zoneOf(address: string): number {
  return 1 + (createHash('sha256').update(address).digest().readUInt32BE(0) % ZONES);
}
