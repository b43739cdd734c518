import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { ApiError } from '../http/errors.js';
import { CidrSet } from '../lib/cidr.js';
import { SPECIAL } from '../lib/special-addresses.js';
import type { Resolve } from './resolve.js';

/** The destinations that the operator allows besides public addresses over https. */
export interface DestinationPolicy {
  /** CIDR blocks or addresses that are allowed although they are not public. */
  allow: readonly string[];
  http: boolean;
  /** CIDR blocks to which http is allowed in any case. */
  httpTo?: readonly string[];
}

/** The most addresses of a name that are tried. The owner of a name could otherwise make the service scan a network. */
export const MAX_ADDRESSES = 8;

/** A refusal whose message is shown to the caller who chose the address. */
export class DestinationRefused extends Error {}
/** A host name without an address. */
export class NameNotResolved extends Error {}

const NOT_PUBLIC = new CidrSet([...SPECIAL.v4, ...SPECIAL.v6]);

/** The addresses of this machine count as not public, whichever they are. */
export function isAllowedAddress(
  address: string,
  { allow }: DestinationPolicy,
  own = ownAddresses(),
): boolean {
  if (isIP(address) === 0) return false;
  const isPublic = !NOT_PUBLIC.includes(address) && !new CidrSet(own).includes(address);
  return isPublic || new CidrSet(allow).includes(address);
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address));
}

/** Checks a URL without resolving its host name. Returns its normal form. */
export function checkUrl(text: string, policy: DestinationPolicy): string {
  const refuse = (message: string) => new ApiError('invalid_request', message, { field: 'url' });
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw refuse('url must be an absolute URL, such as https://example.com/hooks');
  }
  if (!isAllowedScheme(url, policy))
    throw refuse('url must begin with https://; only the operator can allow http');
  if (url.username !== '' || url.password !== '') throw refuse('url must not have a user name or password');
  const host = hostOf(url);
  if (isIP(host) !== 0 && !isAllowedAddress(host, policy)) throw refuse(notAllowed(host));
  url.hash = '';
  return url.href;
}

function isAllowedScheme({ protocol }: URL, { http, httpTo = [] }: DestinationPolicy): boolean {
  return protocol === 'https:' || (protocol === 'http:' && (http || httpTo.length > 0));
}

/** Whether http is allowed to all of these addresses. */
export function isHttpAllowed(
  addresses: readonly string[],
  { http, httpTo = [] }: DestinationPolicy,
): boolean {
  const blocks = new CidrSet(httpTo);
  return http || addresses.every((address) => blocks.includes(address));
}

/** An IPv6 address is returned without its brackets. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}

export interface Destination {
  host: string;
  isName: boolean;
  addresses: string[];
}

/**
 * Resolves and checks the host of a URL. Every attempt does so again, because the operator may have changed the policy.
 * A name is refused if any of its addresses is. The sender must connect to one of the returned addresses: a name whose
 * records change after the check (DNS rebinding) then gains nothing. Returns the first few. Throws DestinationRefused
 * and NameNotResolved.
 */
export async function findDestination(
  url: URL,
  policy: DestinationPolicy,
  resolve: Resolve,
): Promise<Destination> {
  if (!isAllowedScheme(url, policy)) {
    throw new DestinationRefused(NOT_HTTPS);
  }
  const host = hostOf(url);
  const isName = isIP(host) === 0;
  const addresses = isName ? await resolveOrRefuse(host, resolve) : [host];
  if (!addresses.every((address) => isAllowedAddress(address, policy)))
    throw new DestinationRefused(notAllowed(host));
  if (url.protocol === 'http:' && !isHttpAllowed(addresses, policy)) throw new DestinationRefused(NOT_HTTPS);
  return { host, isName, addresses: addresses.slice(0, MAX_ADDRESSES) };
}

const NOT_HTTPS = 'the URL does not begin with https://, and the operator has not allowed it';

async function resolveOrRefuse(host: string, resolve: Resolve) {
  const found = await resolve(host).catch((cause: unknown) => {
    throw new NameNotResolved(`the name ${host} cannot be resolved`, { cause });
  });
  if (found.length === 0) throw new NameNotResolved(`the name ${host} has no address`);
  return found;
}

/** The message leaves the address out, because it could reveal names of the operator's internal network. */
function notAllowed(host: string): string {
  return `${host} is not a public address, and the operator has not allowed it`;
}
