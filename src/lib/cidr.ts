import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';

interface Network {
  address: string;
  bits: number;
  family: 'ipv4' | 'ipv6';
}

/** Reads `10.0.0.0/8`, `2001:db8::/32`, or an address alone. Undefined for any other text. */
function parseCidr(text: string): Network | undefined {
  const match = /^([0-9A-Fa-f:.]+)(?:\/(\d{1,3}))?$/.exec(text);
  const address = match?.[1] ?? '';
  const version = isIP(address);
  if (version === 0) return undefined;
  const longest = version === 4 ? 32 : 128;
  const bits = match?.[2] === undefined ? longest : Number(match[2]);
  if (bits > longest) return undefined;
  return { address, bits, family: version === 4 ? 'ipv4' : 'ipv6' };
}

/** Is the text a CIDR block or an IP address? An address with a zone is neither: it is valid on one machine only. */
export function isCidr(text: string): boolean {
  return parseCidr(text) !== undefined;
}

export function isSubnetOfAny(network: string, networks: readonly string[]): boolean {
  const inner = parseCidr(network);
  if (!inner) return false;
  return networks.some((text) => {
    const outer = parseCidr(text);
    if (outer?.family !== inner.family || outer.bits > inner.bits) return false;
    return blockListOf([outer]).check(inner.address, inner.family);
  });
}

function blockListOf(networks: readonly Network[]): BlockList {
  const list = new BlockList();
  for (const { address, bits, family } of networks) list.addSubnet(address, bits, family);
  return list;
}

/** Networks in a form that is fast to search. Parsing a hundred networks takes two milliseconds. */
export class CidrSet {
  /** A list for each family: in a common one `::/0` would include all of IPv4. */
  private readonly lists: Record<Network['family'], BlockList>;
  private readonly isEmpty: boolean;

  constructor(texts: readonly string[]) {
    const networks = texts.map(parseCidr).filter((network) => network !== undefined);
    this.isEmpty = networks.length === 0;
    this.lists = {
      ipv4: blockListOf(networks.filter(({ family }) => family === 'ipv4')),
      ipv6: blockListOf(networks.filter(({ family }) => family === 'ipv6')),
    };
  }

  /** IPv4 in IPv6, as some sockets report it, counts as IPv4. */
  includes(socketAddress: string): boolean {
    // A search takes two microseconds, also in an empty list.
    if (this.isEmpty) return false;
    const address = normalizeAddress(socketAddress);
    const version = isIP(address);
    if (version === 0) return false;
    const family = version === 4 ? 'ipv4' : 'ipv6';
    return this.lists[family].check(address, family);
  }
}

/** Removes what a socket adds to an address: the prefix of IPv4 in IPv6 and the zone of a link-local address. */
export function normalizeAddress(socketAddress: string): string {
  const address = socketAddress.replace(/%.*$/, '');
  const mapped = /^::ffff:([\d.]+)$/i.exec(address)?.[1];
  return mapped !== undefined && isIPv4(mapped) ? mapped : address;
}

/** The part of an address that stands for one client: all of IPv4, or the 64 bits of an IPv6 network. */
export function clientNetworkOf(socketAddress: string): string {
  const address = normalizeAddress(socketAddress);
  if (!isIPv6(address)) return address;
  const [front = [], back] = address
    .replace(/[\d.]+\.[\d.]+$/, '0:0')
    .split('::')
    .map((half) => (half === '' ? [] : half.split(':')));
  const zeros = back ? Array<string>(8 - front.length - back.length).fill('0') : [];
  const groups = [...front, ...zeros, ...(back ?? [])].slice(0, 4);
  return `${groups.map((group) => parseInt(group, 16).toString(16)).join(':')}::/64`;
}
