import { isIPv4 } from 'node:net';
import { isDomainRule, namesDomain } from '../../../../network-policy/domains.js';
import { rulesFor } from '../../../../network-policy/order.js';
import type { NetworkPolicy } from '../../../../network-policy/schema.js';
import { domainSet, MOST_ELEMENTS } from './kernel-names.js';

/** A day: DNS answers may claim a century. */
const LONGEST_SECS = 86_400;

interface Waiting {
  elements: Map<string, number>;
  settle: (ok: boolean) => void;
}

/** The addresses of names in the sets of one sandbox, in as few calls as possible. */
export class KernelSets {
  private waiting: Waiting[] = [];
  private isApplying = false;
  /** By element: the end of its lifetime in milliseconds since 1970. */
  private readonly known = new Map<string, number>();

  constructor(
    private readonly policy: NetworkPolicy,
    private readonly apply: (script: string) => Promise<void>,
  ) {}

  /** Resolves when the kernel has the addresses. False: it does not take them. */
  async bind(name: string, addresses: readonly string[], ttlSecs: number): Promise<boolean> {
    // The gateway is not trusted: its words become a script.
    if (!Number.isFinite(ttlSecs)) return false;
    const secs = Math.ceil(Math.min(LONGEST_SECS, Math.max(1, ttlSecs)));
    const until = Date.now() + secs * 1_000;
    const elements = new Map<string, number>();
    for (const [position, rule] of rulesFor(this.policy, 'egress').entries()) {
      if (!isDomainRule(rule) || !namesDomain(rule, name)) continue;
      for (const address of addresses.filter((each) => isIPv4(each))) {
        const element = `${domainSet(position)} ${address}`;
        if ((this.known.get(element) ?? 0) < until) elements.set(element, secs);
      }
    }
    if (elements.size === 0) return true;
    return new Promise((settle) => {
      this.waiting.push({ elements, settle });
      void this.applyAll();
    });
  }

  private async applyAll(): Promise<void> {
    if (this.isApplying) return;
    this.isApplying = true;
    while (this.waiting.length > 0) {
      const batch = this.waiting;
      this.waiting = [];
      const ok = await this.applyBatch(batch);
      for (const { settle } of batch) settle(ok);
    }
    this.isApplying = false;
  }

  private async applyBatch(batch: readonly Waiting[]): Promise<boolean> {
    const now = Date.now();
    for (const [element, until] of this.known) if (until <= now) this.known.delete(element);
    const all = new Map<string, number>();
    for (const { elements } of batch)
      for (const [element, secs] of elements) all.set(element, Math.max(all.get(element) ?? 0, secs));
    if (this.known.size + all.size > MOST_ELEMENTS) return false;
    const script = [...all].flatMap(([element, secs]) => renew(element, secs)).join('\n');
    try {
      await this.apply(`${script}\n`);
    } catch {
      return false;
    }
    for (const [element, secs] of all) this.known.set(element, now + secs * 1_000);
    return true;
  }
}

/** Older kernels keep the lifetime of an element that is added again, and refuse to delete one that is missing. */
function renew(element: string, secs: number): string[] {
  const [set, address] = element.split(' ');
  const elementWith = (timeout: string) => `element inet sandkeep ${set} { ${address}${timeout} }`;
  const timed = elementWith(` timeout ${secs}s`);
  return [`add ${timed}`, `delete ${elementWith('')}`, `add ${timed}`];
}
