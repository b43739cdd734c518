import { readdirSync } from 'node:fs';
import { StartRefusedError } from '../../../engine/runtime.js';
import { sleep } from '../../../lib/sleep.js';
import type { AddressPool } from './address-pool.js';
import { HeldNamespace } from './held-namespace.js';
import { inHost } from './host-rules.js';
import type { SandboxLink } from './sandbox-namespace.js';

/** Links of virtual machines that end at this moment may have the next numbers. */
const ATTEMPTS = 64;
/** The kernel is done in much less, unless the machine is very busy. Another attempt follows later. */
const REMOVED_MS = 10_000;
const LOOK_MS = 50;
/** The answer of the kernel to a name that another link has. */
const TAKEN = /\bFile exists\b/;

/**
 * Gives out the addresses of the pool. The name of a link has the number of its address, so the kernel gives out none
 * twice. After a crash of the service it knows which are in use.
 */
export class LinkPlacement {
  private next = 0;
  private kept: ReadonlySet<string> = new Set();

  /** `links`: the beginning of their names. */
  constructor(
    private readonly pool: AddressPool,
    private readonly links: string,
  ) {}

  /**
   * `make` makes a namespace with a link, and returns an open descriptor. `wanted`: an address of the pool. Default:
   * that of `continued`, the link of a sandbox before its pause, or the next free one. Throws StartRefusedError.
   */
  async place(
    make: (host: number, link: SandboxLink) => Promise<number>,
    { mtu, wanted, continued }: { mtu: number; wanted?: string | undefined; continued?: string | undefined },
  ): Promise<HeldNamespace> {
    const attempt = async (number: number) => this.attempt(number, make, mtu);
    const asked = wanted ?? (continued === undefined ? undefined : this.addressOf(continued));
    if (asked !== undefined) return this.placeAt(asked, continued, attempt);
    const taken = new Set([...readdirSync('/sys/class/net'), ...this.kept]);
    for (let tried = 1; ; tried += 1) {
      const number = this.nextNumber(taken);
      try {
        return await attempt(number);
      } catch (error) {
        if (!isTaken(error) || tried === ATTEMPTS) throw failureOf(error);
      }
    }
  }

  private async placeAt(
    address: string,
    continued: string | undefined,
    attempt: (number: number) => Promise<HeldNamespace>,
  ): Promise<HeldNamespace> {
    const number = this.pool.numberOf(address);
    if (number === undefined) throw refusalOf(address);
    const link = this.nameOf(number);
    // The memory of a sandbox that is paused knows its address.
    if (link !== continued && this.kept.has(link)) throw refusalOf(address);
    const limit = performance.now() + REMOVED_MS;
    for (;;) {
      try {
        return await attempt(number);
      } catch (cause) {
        if (!isTaken(cause)) throw failureOf(cause);
        if (link !== continued) throw refusalOf(address, cause);
        // The kernel removes the link of an ended sandbox some time later.
        if (performance.now() > limit)
          throw new Error(`the link ${link} of the sandbox before its pause is still there`, { cause });
        await sleep(LOOK_MS);
      }
    }
  }

  private async attempt(
    number: number,
    make: (host: number, link: SandboxLink) => Promise<number>,
    mtu: number,
  ): Promise<HeldNamespace> {
    const { machine, gateway } = this.pool;
    const [name, address] = [this.nameOf(number), this.pool.address(number)!];
    const descriptor = await inHost(async (host) => make(host, { name, mtu, address, gateway, machine }));
    return new HeldNamespace({ descriptor, link: name, address, machine });
  }

  /** No other sandbox gets the addresses of these links. */
  keep(links: ReadonlySet<string>): void {
    this.kept = links;
  }

  /** Throws StartRefusedError: the pool is another one than that of the link. */
  addressOf(link: string): string {
    const number = Number.parseInt(link.slice(this.links.length), 36);
    const address = this.pool.address(number);
    if (address !== undefined && link === this.nameOf(number)) return address;
    throw new StartRefusedError(
      'the sandboxes have other addresses than before its pause, so its memory cannot be continued: start it again',
    );
  }

  /** A namespace that an earlier process made. Undefined: its link has another form. */
  adopt(descriptor: number, link: string): HeldNamespace | undefined {
    const number = Number.parseInt(link.slice(this.links.length), 36);
    const address = this.pool.address(number);
    if (address === undefined || link !== this.nameOf(number)) return undefined;
    return new HeldNamespace({ descriptor, link, address, machine: this.pool.machine });
  }

  /** An address is given out again as late as possible: connections of its last sandbox may still be known. */
  private nextNumber(taken: ReadonlySet<string>): number {
    for (let tried = 0; ; tried += 1) {
      if (this.pool.address(this.next) === undefined) this.next = 0;
      const number = this.next;
      this.next += 1;
      if (!taken.has(this.nameOf(number))) return number;
      if (tried > taken.size)
        throw new StartRefusedError(
          'every address of the network of the sandboxes is in use: stop a sandbox, or ask the operator for more addresses',
        );
    }
  }

  private nameOf(number: number): string {
    return `${this.links}${number.toString(36)}`;
  }
}

function isTaken(error: unknown): boolean {
  return TAKEN.test((error as Error).message);
}

function failureOf(cause: unknown): StartRefusedError {
  return new StartRefusedError(
    'the network of the sandbox cannot be made; the operator finds the reason in the log of the service',
    { cause },
  );
}

function refusalOf(wanted: string, cause?: unknown): StartRefusedError {
  return new StartRefusedError(
    `the network of the sandboxes cannot give out ${wanted}: choose an address of its subnet that no other sandbox has`,
    { cause },
  );
}
