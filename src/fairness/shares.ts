import { LinkedList } from '../lib/linked-list.js';
import { Entry, isIdle, type Admission, type Flow, type Refusal, type Settle } from './share-entry.js';
import type { SlotLimits } from './slots.js';
import type { Pace } from './pace.js';

export interface SharesOptions {
  /** The cost in progress. An owner with nothing in progress may exceed its own limit. */
  running: SlotLimits;
  /**
   * The cost of an owner in progress while no other is active. A cost of `running.each` has room beside it, for
   * requests that make nobody active, such as probes.
   */
  alone?: number;
  waiting: SlotLimits;
  maxWaitMs: number;
  maxHoldMs: number;
  /**
   * Says whether several owners are active. Nothing of an owner begins while it rests. Default: they always are, and
   * none rests.
   */
  pace?: Pick<Pace, 'isShared' | 'charge' | 'waitOf'>;
  now?: () => number;
}

/**
 * The most virtual time that an owner can save up while it rests or while its own limit keeps it waiting, in units of
 * cost.
 */
const MAX_LEAD = 100;
/** The most time that a unit of work is charged. The rest was spent on waiting for the disk, or for others. */
const MOST_MS_OF_UNIT = 2;
/** The most waiting requests that begin, and the most that are refused as late, in one iteration of the event loop. */
export const AT_ONCE = 50;

/**
 * Divided cost, by start-time fair queueing with a depth, SFQ(D). The next admission goes to the waiting owner with the
 * least virtual start time, which advances by the cost of its requests. The measured cost replaces the estimate at the
 * end. docs/decisions/0020-fair-shares-of-a-process.md gives the reasons.
 */
export class Shares {
  private readonly flows = new Map<string, Flow>();
  private readonly backlogged = new Set<Flow>();
  /** Those with something in progress. */
  private readonly busy = new Set<Flow>();
  private virtualTime = 0;
  private running = 0;
  private waiting = 0;
  private isAdmitting = false;
  private wakesAt = Infinity;
  private wake: NodeJS.Timeout | undefined;
  private readonly now: () => number;
  private readonly onRelease = (entry: Entry, cost: number, work: number) => this.release(entry, cost, work);

  constructor(private readonly options: SharesOptions) {
    this.now = options.now ?? (() => performance.now());
  }

  /** Calls `settle` once, possibly before it returns: without a refusal when the request may begin. */
  enter(owner: string, estimate: number, settle: Settle): Admission {
    const flow = this.flowOf(owner);
    const now = this.now();
    const entry = new Entry(flow, estimate, settle, now, this.onRelease);
    if (flow.queue.size === 0 && this.fits(flow, estimate, now) && this.isNext(flow, now)) {
      this.begin(entry, now);
    } else if (flow.queue.size >= this.options.waiting.each) this.refuse(entry, 'backlog');
    else {
      flow.queue.add(entry);
      this.backlogged.add(flow);
      this.waiting += 1;
      if (this.waiting > this.options.waiting.total) this.refuseOfLongest();
      // It may rest, and that may just have ended.
      else if (flow.queue.size === 1) this.admit();
    }
    return entry;
  }

  /** Returns whether it left late requests for another sweep. */
  sweep(): boolean {
    const now = this.now();
    const { maxWaitMs, maxHoldMs } = this.options;
    let left = AT_ONCE;
    for (const flow of Array.from(this.flows.values())) {
      for (const entry of flow.queue) {
        if (left === 0 || now - entry.since < maxWaitMs) break;
        left -= 1;
        this.refuse(entry, 'late');
      }
      for (const entry of flow.running) {
        if (now - entry.since < maxHoldMs) break;
        this.stopCounting(entry);
        entry.become('expired');
        flow.expired += 1;
      }
      this.forget(flow);
    }
    this.admit();
    return left === 0;
  }

  get counts(): { running: number; waiting: number; flows: number } {
    return { running: this.running, waiting: this.waiting, flows: this.flows.size };
  }

  private flowOf(owner: string): Flow {
    const flow: Flow = this.flows.get(owner) ?? {
      owner,
      start: 0,
      chargedAt: 0,
      cost: 0,
      expired: 0,
      running: new LinkedList(),
      queue: new LinkedList(),
    };
    this.flows.set(owner, flow);
    if (isIdle(flow)) flow.start = Math.max(flow.start, this.virtualTime);
    return flow;
  }

  private limitsAt(now: number): SlotLimits {
    const { running, alone = running.each, pace } = this.options;
    return !pace || pace.isShared(now) ? running : { total: alone + running.each, each: alone };
  }

  private restOf({ owner }: Flow, now: number): number {
    return this.options.pace?.waitOf(owner, now) ?? 0;
  }

  private fits(flow: Flow, cost: number, now: number): boolean {
    const { total, each } = this.limitsAt(now);
    return (
      this.restOf(flow, now) === 0 &&
      (this.running === 0 || this.costWithin(each) + cost <= total) &&
      (flow.running.size === 0 || flow.cost + cost <= each)
    );
  }

  /** Others need not wait for the requests beyond the limit of an owner, which it began while it was alone. */
  private costWithin(each: number): number {
    let cost = 0;
    for (const flow of this.busy) cost += Math.min(flow.cost, each);
    return cost;
  }

  private isNext(flow: Flow, now: number): boolean {
    if (this.backlogged.size === 0) return true;
    const next = this.next(now);
    return next === undefined || flow.start < next.start;
  }

  private next(now: number): Flow | undefined {
    const { each } = this.limitsAt(now);
    let next: Flow | undefined;
    let firstRest = Infinity;
    for (const flow of this.backlogged) {
      if (flow.running.size > 0 && flow.cost + flow.queue.first!.cost > each) continue;
      const rest = this.restOf(flow, now);
      if (rest > 0) firstRest = Math.min(firstRest, rest);
      else if (!next || flow.start < next.start) next = flow;
    }
    if (firstRest < Infinity) this.wakeAfter(firstRest);
    return next;
  }

  /** A request that ends as soon as it begins gets here again. */
  private admit(): void {
    if (this.isAdmitting || this.backlogged.size === 0) return;
    this.isAdmitting = true;
    let left = AT_ONCE;
    try {
      while (left > 0 && this.admitNext()) left -= 1;
    } finally {
      this.isAdmitting = left === 0;
    }
    if (!this.isAdmitting) return;
    setImmediate(() => {
      this.isAdmitting = false;
      this.admit();
    });
  }

  /** Admits again when the rest of the first owner is over. */
  private wakeAfter(rest: number): void {
    const at = this.now() + rest;
    if (at >= this.wakesAt) return;
    clearTimeout(this.wake);
    this.wakesAt = at;
    this.wake = setTimeout(() => {
      this.wakesAt = Infinity;
      this.admit();
    }, rest).unref();
  }

  private admitNext(): boolean {
    if (this.backlogged.size === 0) return false;
    const now = this.now();
    const next = this.next(now);
    const head = next?.queue.first;
    if (!next || !head || !this.fits(next, head.cost, now)) return false;
    this.leaveQueue(head);
    this.begin(head, now);
    return true;
  }

  private begin(entry: Entry, now: number): void {
    const { flow, cost } = entry;
    flow.start = Math.max(flow.start, this.virtualTime - MAX_LEAD);
    this.virtualTime = Math.max(this.virtualTime, flow.start);
    flow.start += cost;
    entry.become('running');
    entry.since = now;
    if (flow.running.size === 0) flow.chargedAt = entry.since;
    flow.running.add(entry);
    flow.cost += cost;
    this.busy.add(flow);
    this.running += 1;
    entry.settle(entry);
  }

  private release(entry: Entry, cost: number, work: number): void {
    const { state, flow } = entry;
    if (state === 'over') return;
    entry.become('over');
    if (state === 'waiting') this.leaveQueue(entry);
    else {
      flow.start += cost - entry.cost;
      this.charge(flow, work);
      if (state === 'running') this.stopCounting(entry);
      else flow.expired -= 1;
    }
    this.forget(flow);
    this.admit();
  }

  private charge(flow: Flow, work: number): void {
    const now = this.now();
    this.options.pace?.charge(flow.owner, Math.min(now - flow.chargedAt, work * MOST_MS_OF_UNIT), now);
    flow.chargedAt = now;
  }

  private stopCounting(entry: Entry): void {
    const { flow } = entry;
    flow.running.delete(entry);
    flow.cost -= entry.cost;
    this.running -= 1;
    if (flow.running.size === 0) this.busy.delete(flow);
  }

  private refuse(entry: Entry, reason: Refusal): void {
    this.leaveQueue(entry);
    entry.become('over');
    this.forget(entry.flow);
    entry.settle(entry, reason);
  }

  /** The oldest of the longest queue is the one whose client has most likely left. */
  private refuseOfLongest(): void {
    let longest: Flow | undefined;
    for (const flow of this.backlogged) if (!longest || flow.queue.size > longest.queue.size) longest = flow;
    this.refuse(longest!.queue.first!, 'full');
  }

  private leaveQueue(entry: Entry): void {
    const { flow } = entry;
    if (!flow.queue.delete(entry)) return;
    this.waiting -= 1;
    if (flow.queue.size === 0) this.backlogged.delete(flow);
  }

  private forget(flow: Flow): void {
    if (!isIdle(flow)) return;
    if (flow.start <= this.virtualTime) this.flows.delete(flow.owner);
    if (this.running + this.waiting > 0) return;
    for (const other of this.flows.values()) if (isIdle(other)) this.flows.delete(other.owner);
  }
}
