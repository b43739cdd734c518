import type { PublishedPort } from '../spec/network-schema.js';
import { isLoopback } from '../spec/published-port.js';

/**
 * Rules for ports that are published on loopback addresses alone. Engines before version 28 forward packets of any
 * network to such a port, if they are for the address of the sandbox. Their proxy makes the connections of the machine
 * itself, from the address of the bridge.
 */
export function machineOnlyRules(ports: readonly PublishedPort[]): string[] {
  const keyOf = ({ protocol, guest_port }: PublishedPort) =>
    `meta l4proto ${protocol} th dport ${guest_port}`;
  const open = new Set(ports.filter(({ host_bind }) => !isLoopback(host_bind)).map(keyOf));
  return [...new Set(ports.map(keyOf))].flatMap((key) =>
    open.has(key) ? [] : [`${key} ip saddr != @host4 drop`, `${key} ip6 saddr != @host6 drop`],
  );
}
