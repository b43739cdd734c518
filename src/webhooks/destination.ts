import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { ApiError } from '../http/errors.js';
import { SPECIAL } from '../lib/special-addresses.js';

/** What the operator lets webhooks reach beside the public internet by https. */
export interface Reach {
  /** CIDR blocks (or addresses) that are not public and may be reached. */
  allow: readonly string[];
  /** Whether `http` will do. */
  http: boolean;
}

/** The address of a name, as the system resolves it: all of them. */
export type Resolve = (host: string) => Promise<{ address: string; family: number }[]>;

export const resolveBySystem: Resolve = (host) => lookup(host, { all: true, verbatim: true });

/** Why nothing is sent: told to who made the webhook. */
export class DestinationRefused extends Error {}

const SPECIAL_ADDRESSES = listOf([...SPECIAL.v4, ...SPECIAL.v6]);

/** Reads `10.0.0.0/8` or one address. Undefined when it is neither. */
export function parseBlock(text: string): { address: string; prefix: number; family: 4 | 6 } | undefined {
  const [, address = '', length] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  if (family !== 4 && family !== 6) return undefined;
  const most = family === 4 ? 32 : 128;
  const prefix = length === undefined ? most : Number(length);
  return prefix > most ? undefined : { address, prefix, family };
}

function listOf(blocks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const text of blocks) {
    const block = parseBlock(text);
    if (!block) throw new Error(`not an address or a block of addresses: ${text}`);
    list.addSubnet(block.address, block.prefix, `ipv${block.family}`);
  }
  return list;
}

/** May webhooks connect to this address? */
export function mayReach(address: string, { allow }: Reach): boolean {
  const family = isIP(address);
  if (family === 0) return false;
  const type = family === 4 ? 'ipv4' : 'ipv6';
  return !SPECIAL_ADDRESSES.check(address, type) || listOf(allow).check(address, type);
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
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && reach.http)) {
    throw refuse('url must begin with https://; only the operator can allow http');
  }
  if (url.username !== '' || url.password !== '') throw refuse('url must not have a user name or password');
  const host = hostOf(url);
  if (isIP(host) !== 0 && !mayReach(host, reach)) throw refuse(notAllowed(host));
  url.hash = '';
  return url.href;
}

/** An IPv6 address without its brackets. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}

/**
 * The address to connect to. Every address that the name has must be one that may be reached: who mixes them wants to get
 * in. The caller connects to the very address that was checked, so that a name which changes its mind gains nothing.
 * Throws DestinationRefused.
 */
export async function chooseAddress(
  host: string,
  reach: Reach,
  resolve: Resolve,
): Promise<{ address: string; family: number }> {
  const family = isIP(host);
  const found = family === 0 ? await resolveOrRefuse(host, resolve) : [{ address: host, family }];
  for (const { address } of found)
    if (!mayReach(address, reach)) throw new DestinationRefused(notAllowed(host));
  return found[0]!;
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
