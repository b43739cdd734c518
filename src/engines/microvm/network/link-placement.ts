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
    const { machine, gateway } = this.pool;
    const asked = wanted ?? (continued === undefined ? undefined : this.addressOf(continued));
    const fixed = asked === undefined ? undefined : this.pool.numberOf(asked);
    if (asked !== undefined && fixed === undefined) throw refusalOf(asked);
    // The memory of a sandbox that is paused knows its address.
    const keeper = fixed === undefined ? undefined : this.nameOf(fixed);
    if (keeper !== undefined && keeper !== continued && this.kept.has(keeper)) throw refusalOf(asked!);
    const began = performance.now();
    const taken = new Set([...readdirSync('/sys/class/net'), ...this.kept]);
    for (let attempt = 1; ;) {
      const number = fixed ?? this.nextNumber(taken);
      const address = this.pool.address(number)!;
      const link = this.nameOf(number);
      try {
        const descriptor = await inHost(async (host) =>
          make(host, { name: link, mtu, address, gateway, machine }),
        );
        return new HeldNamespace({ descriptor, link, address, machine });
      } catch (error) {
        const isTaken = TAKEN.test((error as Error).message);
        if (isTaken && link === continued) {
          // The kernel removes the link of an ended sandbox some time later.
          if (performance.now() - began > REMOVED_MS)
            throw new Error(`the link ${link} of the sandbox before its pause is still there`, {
              cause: error,
            });
          await sleep(LOOK_MS);
          continue;
        }
        if (isTaken && asked !== undefined) throw refusalOf(asked, error);
        attempt += 1;
        if (!isTaken || attempt > ATTEMPTS)
          throw new StartRefusedError(
            'the network of the sandbox cannot be made; the operator finds the reason in the log of the service',
            { cause: error },
          );
      }
    }
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

function refusalOf(wanted: string, cause?: unknown): StartRefusedError {
  return new StartRefusedError(
    `the network of the sandboxes cannot give out ${wanted}: choose an address of its subnet that no other sandbox has`,
    { cause },
  );
}
