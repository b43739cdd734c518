import { createHash } from 'node:crypto';

/** The addresses of the virtual machines of an installation. */
export interface AddressPool {
  /** Such as `10.200.16.0/20`. */
  subnet: string;
  /** The address of the machine, on the link of each sandbox. */
  machine: string;
  /** The address of each namespace, which is the gateway of its virtual machine. */
  gateway: string;
  /** The address of the sandbox with this number, from 0 on. Undefined: there are not so many. */
  address: (number: number) => string | undefined;
  /** Undefined: the address is not one of the pool's for sandboxes. */
  numberOf: (address: string) => number | undefined;
}

interface Block {
  first: number;
  bits: number;
}

export interface Route extends Block {
  /** `*`: none, because packets to it are dropped. */
  link: string;
}

const BITS = 20;
/** The network, the machine and the gateway. */
const BEFORE = 3;
/** In 10.192.0.0/10: few choose these, and Docker's own pools are elsewhere. */
const FIRST = toNumber('10.192.0.0');
const CANDIDATES = 2 ** (BITS - 10);

/** Undefined: it is none, or too small. */
export function parsePool(subnet: string): AddressPool | undefined {
  const [, text, length] = /^(\d+\.\d+\.\d+\.\d+)\/(\d+)$/.exec(subnet) ?? [];
  if (text === undefined) return undefined;
  const [first, bits] = [toNumber(text), Number(length)];
  // Without the last address, for packets to all.
  const count = 2 ** (32 - bits) - BEFORE - 1;
  if (Number.isNaN(first) || bits < 8 || count < 1 || first % 2 ** (32 - bits) !== 0) return undefined;
  return {
    subnet,
    machine: toText(first + 1),
    gateway: toText(first + 2),
    address: (number) => (number < count ? toText(first + BEFORE + number) : undefined),
    numberOf: (address) => {
      const number = toNumber(address) - first - BEFORE;
      return number >= 0 && number < count ? number : undefined;
    },
  };
}

/** A subnet that no route of the machine leads to. Undefined: there is none. */
export function freeSubnet(instanceId: string, routes: readonly Route[]): string | undefined {
  const start = createHash('sha256').update(instanceId).digest().readUInt32BE(0);
  for (let step = 0; step < CANDIDATES; step += 1) {
    const first = FIRST + ((start + step) % CANDIDATES) * 2 ** (32 - BITS);
    const subnet = `${toText(first)}/${BITS}`;
    if (isFree(subnet, routes)) return subnet;
  }
  return undefined;
}

export function isFree(subnet: string, routes: readonly Route[]): boolean {
  const [text, bits] = subnet.split('/');
  const block = { first: toNumber(text!), bits: Number(bits) };
  return !routes.some((route) => overlap(route, block));
}

/** `table`: /proc/net/route. Without default routes, which lead everywhere. */
export function parseRoutes(table: string): Route[] {
  return table.split('\n').flatMap((line) => {
    const [, link, destination, mask] = /^(\S+)\t([\dA-F]{8})\t(?:\S+\t){5}([\dA-F]{8})\t/.exec(line) ?? [];
    if (link === undefined) return [];
    const bits = fromHex(mask!).toString(2).replaceAll('0', '').length;
    return bits === 0 ? [] : [{ link, first: fromHex(destination!), bits }];
  });
}

function overlap(one: Block, other: Block): boolean {
  const size = 2 ** (32 - Math.min(one.bits, other.bits));
  return Math.floor(one.first / size) === Math.floor(other.first / size);
}

/** The kernel writes the bytes of this processor, which is little-endian. */
function fromHex(digits: string): number {
  return Buffer.from(digits, 'hex').readUInt32LE(0);
}

/** NaN for anything else. */
function toNumber(address: string): number {
  const octets = address.split('.').map(Number);
  if (octets.length !== 4 || octets.some((octet) => !(octet >= 0 && octet <= 255))) return Number.NaN;
  return octets.reduce((sum, octet) => sum * 256 + octet, 0);
}

function toText(number: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join('.');
}
