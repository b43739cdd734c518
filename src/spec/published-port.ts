import { isIPv4, isIPv6 } from 'node:net';
import { CidrSet } from '../lib/cidr.js';
import { DEFAULT_BIND, type PortToPublish, type PublishedPort } from './network-schema.js';

/** Those of `localhost` and of each name below it. */
const NAMED_LOOPBACK = new Set(['127.0.0.1', '::1']);
const LOOPBACK = new CidrSet(['127.0.0.0/8', '::1']);
const EVERY_ADDRESS = new Set(['0.0.0.0', '::']);

/** The one text of an address. Undefined: it is none, or stands for another (IPv4 in IPv6, or a zone). */
export function canonicalAddress(text: string): string | undefined {
  if (isIPv4(text)) return text;
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const address = new URL(`http://[${text}]`).hostname.slice(1, -1);
  return address.startsWith('::ffff:') ? undefined : address;
}

export function isLoopback(address: string): boolean {
  return LOOPBACK.includes(address);
}

/**
 * Whether browsers find `localhost` and the names below it at this address. They send cookies to every port of a host
 * name, so a program on a port there gets those of the console and of previews.
 */
export function isLocalhost(address: string): boolean {
  return NAMED_LOOPBACK.has(address);
}

/** `host_port` 0: none is chosen yet. */
export function withDefaults({
  guest_port,
  host_port = 0,
  host_bind = DEFAULT_BIND,
  protocol = 'tcp',
}: PortToPublish): PublishedPort {
  return { guest_port, host_port, host_bind: canonicalAddress(host_bind) ?? host_bind, protocol };
}

/** Whether both take the same port of the host. */
export function overlap(one: PublishedPort, two: PublishedPort): boolean {
  return one.host_port === two.host_port && sharePorts(one, two);
}

/** Whether a port of one address is that of the other too: an address that stands for all of its family has each. */
export function sharePorts(one: PublishedPort, two: PublishedPort): boolean {
  if (one.protocol !== two.protocol) return false;
  if (one.host_bind === two.host_bind) return true;
  if (isIPv4(one.host_bind) !== isIPv4(two.host_bind)) return false;
  return [one.host_bind, two.host_bind].some((bind) => EVERY_ADDRESS.has(bind));
}
