import { isIP } from 'node:net';
import { ApiError } from '../http/errors.js';
import { CidrSet } from '../lib/cidr.js';
import { SPECIAL } from '../lib/special-addresses.js';
import type { Resolve } from './resolve.js';

/** The destinations that the operator allows besides public addresses over https. */
export interface DestinationPolicy {
  /** CIDR blocks or addresses that are allowed although they are not public. */
  allow: readonly string[];
  http: boolean;
}

/** A refusal whose message is shown to the owner of the webhook. */
class DestinationRefused extends Error {}

const NOT_PUBLIC = new CidrSet([...SPECIAL.v4, ...SPECIAL.v6]);

export function isAllowedAddress(address: string, { allow }: DestinationPolicy): boolean {
  if (isIP(address) === 0) return false;
  return !NOT_PUBLIC.includes(address) || new CidrSet(allow).includes(address);
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

function isAllowedScheme({ protocol }: URL, { http }: DestinationPolicy): boolean {
  return protocol === 'https:' || (protocol === 'http:' && http);
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
 * Resolves and checks the host of a URL. Every attempt does so again, because the operator may have changed the policy. A name
 * is refused if any of its addresses is. The sender must connect to one of the returned addresses: a name whose records
 * change after the check (DNS rebinding) then gains nothing. Throws DestinationRefused.
 */
export async function findDestination(
  url: URL,
  policy: DestinationPolicy,
  resolve: Resolve,
): Promise<Destination> {
  if (!isAllowedScheme(url, policy)) {
    throw new DestinationRefused('the URL does not begin with https://, and the operator has not allowed it');
  }
  const host = hostOf(url);
  const isName = isIP(host) === 0;
  const addresses = isName ? await resolveOrRefuse(host, resolve) : [host];
  if (!addresses.every((address) => isAllowedAddress(address, policy)))
    throw new DestinationRefused(notAllowed(host));
  return { host, isName, addresses };
}

async function resolveOrRefuse(host: string, resolve: Resolve) {
  const found = await resolve(host).catch((cause: unknown) => {
    throw new DestinationRefused(`the name ${host} cannot be resolved`, { cause });
  });
  if (found.length === 0) throw new DestinationRefused(`the name ${host} has no address`);
  return found;
}

/** The message leaves the address out, because it could reveal names of the operator's internal network. */
function notAllowed(host: string): string {
  return `${host} is not a public address, and the operator has not allowed it`;
}
