import { Rate } from '../../fairness/rate.js';
import { Slots, type Release } from '../../fairness/slots.js';
import type { SandboxSettings } from '../protocol.js';

/** Queries a second, for long. A build that resolves thousands of names has its burst. */
export const QUERIES = {
  perSecond: { sandbox: 200, org: 1_000 },
  burst: { sandbox: 1_000, org: 4_000 },
  atOnceOfSandbox: 64,
};
/** The most of the time of the process that goes into answers of name servers, which can be made to take long. */
const SHARE = { sandbox: 0.05, org: 0.1 };
/** More says that the process was paused. */
const MOST_MS = 25;
/** An organization with fewer than its base is served, however many queries the others have. */
const AT_ONCE = { total: 2_048, each: 256, base: 32 };

/** Bounds the queries of each sandbox and organization. A query above the bounds is dropped, and its client retries. */
export class QueryLimits {
  private readonly rate = new Rate();
  private readonly ofSandbox = new Slots({ total: Infinity, each: QUERIES.atOnceOfSandbox });
  private readonly ofOrg = new Slots(AT_ONCE);

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Undefined: there are too many. */
  admit({ id, orgId }: SandboxSettings): Release | undefined {
    const now = this.now();
    const owners = [
      { owner: sandboxOwner(id), perSecond: QUERIES.perSecond.sandbox, burst: QUERIES.burst.sandbox },
      { owner: orgOwner(orgId), perSecond: QUERIES.perSecond.org, burst: QUERIES.burst.org },
    ];
    const isAhead = owners.some(
      ({ owner, perSecond, burst }) => this.rate.aheadOf(owner, now) >= (burst * 1_000) / perSecond,
    );
    if (isAhead) return undefined;
    const sandbox = this.ofSandbox.acquire(id);
    const org = sandbox && this.ofOrg.acquire(orgId);
    if (!org) {
      sandbox?.();
      return undefined;
    }
    for (const { owner, perSecond } of owners) this.rate.charge(owner, 1_000 / perSecond, now);
    return () => {
      sandbox();
      org();
    };
  }

  /** Charges the time that an answer took, in milliseconds. */
  spend({ id, orgId }: SandboxSettings, millis: number): void {
    const spent = Math.min(millis, MOST_MS);
    this.rate.charge(sandboxOwner(id), spent / SHARE.sandbox, this.now());
    this.rate.charge(orgOwner(orgId), spent / SHARE.org, this.now());
  }
}

function sandboxOwner(id: string): string {
  return `sandbox ${id}`;
}

function orgOwner(id: string): string {
  return `org ${id}`;
}
