import { isIP, isIPv4 } from 'node:net';
import { CidrSet } from '../../lib/cidr.js';
import { GROUPS, SPECIAL } from '../../lib/special-addresses.js';
import { DNS_PORT } from '../../network-policy/traffic.js';
import type { GatedSandbox } from '../sandbox.js';
import type { ServerAddress } from './exchange.js';

const special = new CidrSet([...SPECIAL.v4, ...SPECIAL.v6]);
const privates = new CidrSet([...GROUPS.private.v4, ...GROUPS.private.v6]);
const metadata = new CidrSet([...GROUPS.metadata.v4, ...GROUPS.metadata.v6]);

/** Reads `address`, `address:port` or `[address]:port`. Undefined: it is none of these, such as the name of a host. */
export function readServerAddress(text: string): ServerAddress | undefined {
  if (isIP(text) !== 0) return { address: text, port: DNS_PORT };
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
  if (!match) return undefined;
  const address = match[1] ?? match[2]!;
  const port = Number(match[3]);
  const isAddress = match[1] === undefined ? isIPv4(address) : isIP(address) !== 0;
  return isAddress && port > 0 && port <= 65_535 ? { address, port } : undefined;
}

/**
 * Whether the gateway may ask a name server that a specification names. The gateway has other routes than the sandbox,
 * so it never asks the machine, other sandboxes, metadata services and link-local addresses. Addresses of private
 * networks need a rule by address: without one the specification would reach them past the policy.
 */
export function mayAsk({ settings, evaluator }: GatedSandbox, { address, port }: ServerAddress): boolean {
  if (address.includes('%') || metadata.includes(address)) return false;
  if (settings.surroundings.hosts.includes(address)) return false;
  const verdict = evaluator.decide({ carrier: 'udp', address, port, names: [] });
  if (verdict.rule === 'guard') return false;
  if (!special.includes(address)) return true;
  return privates.includes(address) && verdict.action === 'allow';
}

/** Whether an address is public. */
export function isPublic(address: string): boolean {
  return !special.includes(address);
}
