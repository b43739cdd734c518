import { isIP } from 'node:net';
import { ApiError } from '../http/errors.js';
import { includesAddress } from '../lib/cidr.js';
import { SPECIAL } from '../lib/special-addresses.js';
import type { Resolve } from './resolve.js';

/** What the operator lets webhooks reach beside the public internet by https. */
export interface Reach {
  /** CIDR blocks (or addresses) that are not public and may be reached. */
  allow: readonly string[];
  /** Whether `http` will do. */
  http: boolean;
}

/** Why nothing is sent: told to who made the webhook. */
class DestinationRefused extends Error {}

const NOT_PUBLIC = [...SPECIAL.v4, ...SPECIAL.v6];

/** May webhooks connect to this address? */
export function mayReach(address: string, { allow }: Reach): boolean {
  if (isIP(address) === 0) return false;
  return !includesAddress(NOT_PUBLIC, address) || includesAddress(allow, address);
}

/** Checks what can be told of a URL without asking for its name, and gives its normal form. */
export function checkUrl(text: string, reach: Reach): string {
  const refuse = (message: string) => new ApiError('invalid_request', message, { field: 'url' });
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw refuse('url must be an absolute URL, such as https://example.com/hooks');
  }
  if (!isAllowed(url, reach)) throw refuse('url must begin with https://; only the operator can allow http');
  if (url.username !== '' || url.password !== '') throw refuse('url must not have a user name or password');
  const host = hostOf(url);
  if (isIP(host) !== 0 && !mayReach(host, reach)) throw refuse(notAllowed(host));
  url.hash = '';
  return url.href;
}

function isAllowed({ protocol }: URL, { http }: Reach): boolean {
  return protocol === 'https:' || (protocol === 'http:' && http);
}

/** An IPv6 address without its brackets. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}

export interface Destination {
  /** A name or an address. */
  host: string;
  isName: boolean;
  /** What it may be connected to: checked. */
  addresses: string[];
}

/**
 * Where a URL leads, asked for again at each attempt: what the operator allowed when the webhook was made need not be allowed
 * any more. Every address that the name has must be one that may be reached: who mixes them wants to get in. The caller
 * connects to the very addresses that were checked, so that a name which changes its mind gains nothing. Throws
 * DestinationRefused.
 */
export async function findDestination(url: URL, reach: Reach, resolve: Resolve): Promise<Destination> {
  if (!isAllowed(url, reach)) {
    throw new DestinationRefused('the URL does not begin with https://, and the operator has not allowed it');
  }
  const host = hostOf(url);
  const isName = isIP(host) === 0;
  const addresses = isName ? await resolveOrRefuse(host, resolve) : [host];
  if (!addresses.every((address) => mayReach(address, reach))) throw new DestinationRefused(notAllowed(host));
  return { host, isName, addresses };
}

async function resolveOrRefuse(host: string, resolve: Resolve) {
  const found = await resolve(host).catch((cause: unknown) => {
    throw new DestinationRefused(`the name ${host} cannot be resolved`, { cause });
  });
  if (found.length === 0) throw new DestinationRefused(`the name ${host} has no address`);
  return found;
}

/** The address itself is left out: it would tell what the names of the operator's network stand for. */
function notAllowed(host: string): string {
  return `${host} is not a public address, and the operator has not allowed it`;
}
