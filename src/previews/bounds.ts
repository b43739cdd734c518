import { ApiError } from '../http/errors.js';
import { Slots, type Release, type SlotLimits } from '../fairness/slots.js';

export interface PreviewLimits {
  /** Requests in progress, upgraded connections included: in total, and of one client address. */
  requests: SlotLimits;
  /** The requests of one organization in progress. */
  ofOrg: number;
  /** The requests of one sandbox in progress. */
  ofSandbox: number;
  /** The bytes of requests whose answers are not sent: in total, and of one client network. */
  unsent: SlotLimits & { base: number };
}

const MIB = 1024 * 1024;
/** Measured for a stream of HTTP/2 with a short head: 23 KB. */
const BYTES_OF_REQUEST = 24 * 1024;

/** One connection of HTTP/2 has up to 100 requests. A page of a development server loads a thousand files. */
export const PREVIEW_LIMITS: PreviewLimits = {
  requests: { total: 10_000, each: 2_500 },
  ofOrg: 5_000,
  ofSandbox: 2_000,
  // Clients without a grant can fill the total, and leave each other network room for 42 requests.
  unsent: { total: 256 * MIB, each: 64 * MIB, base: MIB },
};

/** The bounds of requests to previews in this process. Nothing waits. */
export class Bounds {
  private readonly ofAddresses: Slots;
  private readonly ofOrgs: Slots;
  private readonly ofSandboxes: Slots;
  private readonly unsent: Slots;

  constructor(private readonly limits: PreviewLimits) {
    this.ofAddresses = new Slots(limits.requests);
    this.ofOrgs = new Slots({ total: limits.requests.total, each: limits.ofOrg });
    this.ofSandboxes = new Slots({ total: limits.requests.total, each: limits.ofSandbox });
    this.unsent = new Slots(limits.unsent);
  }

  /**
   * Counts the memory of a request until its answer is sent: the client of HTTP/2 may keep the window for it closed.
   * Undefined at a limit. `network`: of the client.
   */
  holdUnsent(network: string, headBytes: number): Release | undefined {
    return this.unsent.acquire(network, BYTES_OF_REQUEST + headBytes);
  }

  /** Throws an ApiError at a limit. `network`: of the client. */
  enter(network: string): Release {
    return this.ofAddresses.acquire(network) ?? refuse('of this address', this.limits.requests.each);
  }

  enterSandbox({ orgId, sandboxId }: { orgId: string; sandboxId: string }): Release {
    const { ofOrg, ofSandbox } = this.limits;
    const releaseSandbox =
      this.ofSandboxes.acquire(sandboxId) ?? refuse('to previews of this sandbox', ofSandbox);
    const releaseOrg = this.ofOrgs.acquire(orgId);
    if (!releaseOrg) {
      releaseSandbox();
      return refuse('to previews of this organization', ofOrg);
    }
    return () => {
      releaseSandbox();
      releaseOrg();
    };
  }
}

function refuse(subject: string, limit: number): never {
  const message = `at most ${limit} requests ${subject} are in progress at once: wait for their answers`;
  throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': '1' } });
}
