import { isIPv4 } from 'node:net';
import { isDomainRule, namesDomain } from '../../network-policy/domains.js';
import { rulesFor } from '../../network-policy/order.js';
import type { NetworkPolicy } from '../../network-policy/schema.js';
import { domainSet, MOST_ELEMENTS } from './kernel-names.js';

/** A day: DNS answers may claim a century. */
const LONGEST_SECS = 86_400;

/** A full set makes room for so many at once, because each time its elements are sorted. */
const ROOM_ELEMENTS = 256;

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
    if (all.size > MOST_ELEMENTS) return false;
    const ending = this.firstToEnd(all);
    const removals = ending.flatMap((element) => remove(element));
    const script = [...removals, ...[...all].flatMap(([element, secs]) => renew(element, secs))].join('\n');
    try {
      await this.apply(`${script}\n`);
    } catch {
      return false;
    }
    for (const element of ending) this.known.delete(element);
    for (const [element, secs] of all) this.known.set(element, now + secs * 1_000);
    return true;
  }

  /** The elements that give way to others, those that end first: a crawler with long-lived answers goes on. */
  private firstToEnd(others: ReadonlyMap<string, number>): string[] {
    const fresh = [...others.keys()].filter((element) => !this.known.has(element)).length;
    const surplus = this.known.size + fresh - MOST_ELEMENTS;
    if (surplus <= 0) return [];
    return [...this.known]
      .filter(([element]) => !others.has(element))
      .toSorted(([, one], [, other]) => one - other)
      .slice(0, Math.max(surplus, ROOM_ELEMENTS))
      .map(([element]) => element);
  }
}

/** The element may have ended meanwhile, and the kernel refuses to delete a missing one. */
function remove(element: string): string[] {
  return renew(element, 1).slice(0, 2);
}

/** Older kernels keep the lifetime of an element that is added again, and refuse to delete one that is missing. */
function renew(element: string, secs: number): string[] {
  const [set, address] = element.split(' ');
  const elementWith = (timeout: string) => `element inet sandkeep ${set} { ${address}${timeout} }`;
  const timed = elementWith(` timeout ${secs}s`);
  return [`add ${timed}`, `delete ${elementWith('')}`, `add ${timed}`];
}
