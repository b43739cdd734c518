import type { SlotLimits } from './slots.js';
import type { Pace } from './pace.js';

export interface FairAdmissionOptions {
  /** A cost. A key with nothing in progress may exceed its own limit. */
  running: SlotLimits;
  /** The cost of a key while no other is active. Requests of keys that are not, such as probes, have room beside it. */
  alone: number;
  waiting: SlotLimits;
  maxWaitMs: number;
  maxHoldMs: number;
  /** Says whether several keys are active. Nothing of a key begins while it rests. */
  pace: Pick<Pace, 'isShared' | 'charge' | 'waitOf'>;
  now?: () => number;
}

/** `backlog`: the key has too many waiting. `full`: all keys together have. `late`: the wait took too long. */
export type Refusal = 'backlog' | 'full' | 'late';

export interface Admission {
  readonly isWaiting: boolean;
  /** Ends the admission, also one that still waits. `cost`: as measured; `work`: without the time. Only the first call counts. */
  release(cost?: number, work?: number): void;
}

type Settle = (admission: Admission, refusal?: Refusal) => void;

class Entry implements Admission {
  state: 'waiting' | 'running' | 'expired' | 'over' = 'waiting';

  constructor(
    readonly flow: Flow,
    readonly cost: number,
    readonly settle: Settle,
    public since: number,
    private readonly onRelease: (entry: Entry, cost: number, work: number) => void,
  ) {}

  get isWaiting(): boolean {
    return this.state === 'waiting';
  }

  release(cost = this.cost, work = cost): void {
    this.onRelease(this, cost, work);
  }
}

interface Flow {
  key: string;
  start: number;
  running: Set<Entry>;
  /** The time in progress until then is charged. */
  chargedAt: number;
  cost: number;
  /** The requests that no longer count, and are charged when they end. */
  expired: number;
  queue: Set<Entry>;
}

const MAX_LEAD = 100;
/** The most time that a unit of work is charged. The rest was spent on waiting for the disk, or for others. */
const MOST_MS_OF_UNIT = 2;
/** The most waiting requests that begin, and the most that are refused as late, in one turn of the event loop. */
export const AT_ONCE = 50;

/**
 * Start-time fair queueing with a depth, SFQ(D): the next admission goes to the waiting key with the least virtual start time,
 * which advances by the cost of its requests. The measured cost replaces the estimate at the end.
 * docs/decisions/0020-fair-shares-of-a-process.md gives the reasons.
 */
export class FairAdmission {
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

  constructor(private readonly options: FairAdmissionOptions) {
    this.now = options.now ?? (() => performance.now());
  }

  /** Calls `settle` once, possibly before it returns: without a refusal when the request may begin. */
  enter(key: string, estimate: number, settle: Settle): Admission {
    const flow = this.flowOf(key);
    const now = this.now();
    const entry = new Entry(flow, estimate, settle, now, this.onRelease);
    if (flow.queue.size === 0 && this.fits(flow, estimate) && this.isNext(flow)) this.begin(entry);
    else if (flow.queue.size >= this.options.waiting.each) this.refuse(entry, 'backlog');
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
        entry.state = 'expired';
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

  private flowOf(key: string): Flow {
    const flow = this.flows.get(key) ?? {
      key,
      start: 0,
      chargedAt: 0,
      cost: 0,
      expired: 0,
      running: new Set<Entry>(),
      queue: new Set<Entry>(),
    };
    this.flows.set(key, flow);
    if (isIdle(flow)) flow.start = Math.max(flow.start, this.virtualTime);
    return flow;
  }

  private get limits(): SlotLimits {
    const { alone, running, pace } = this.options;
    return pace.isShared(this.now()) ? running : { total: alone + running.each, each: alone };
  }

  private restOf({ key }: Flow): number {
    return this.options.pace.waitOf(key, this.now());
  }

  private fits(flow: Flow, cost: number): boolean {
    const { total, each } = this.limits;
    return (
      this.restOf(flow) === 0 &&
      (this.running === 0 || this.costWithin(each) + cost <= total) &&
      (flow.running.size === 0 || flow.cost + cost <= each)
    );
  }

  /** Others need not wait for the requests beyond the limit of a key, which it began while it was alone. */
  private costWithin(each: number): number {
    let cost = 0;
    for (const flow of this.busy) cost += Math.min(flow.cost, each);
    return cost;
  }

  private isNext(flow: Flow): boolean {
    const next = this.next();
    return next === undefined || flow.start < next.start;
  }

  private next(): Flow | undefined {
    const { each } = this.limits;
    let next: Flow | undefined;
    let firstRest = Infinity;
    for (const flow of this.backlogged) {
      const [head] = flow.queue;
      if (flow.running.size > 0 && flow.cost + head!.cost > each) continue;
      const rest = this.restOf(flow);
      if (rest > 0) firstRest = Math.min(firstRest, rest);
      else if (!next || flow.start < next.start) next = flow;
    }
    if (firstRest < Infinity) this.wakeAfter(firstRest);
    return next;
  }

  /** A request that ends as soon as it begins gets here again. */
  private admit(): void {
    if (this.isAdmitting) return;
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

  /** Admits again when the first resting key may go on. */
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
    const next = this.backlogged.size > 0 ? this.next() : undefined;
    const [head] = next?.queue ?? [];
    if (!next || !head || !this.fits(next, head.cost)) return false;
    this.leaveQueue(head);
    this.begin(head);
    return true;
  }

  private begin(entry: Entry): void {
    const { flow, cost } = entry;
    flow.start = Math.max(flow.start, this.virtualTime - MAX_LEAD);
    this.virtualTime = Math.max(this.virtualTime, flow.start);
    flow.start += cost;
    entry.state = 'running';
    entry.since = this.now();
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
    entry.state = 'over';
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
    this.options.pace.charge(flow.key, Math.min(now - flow.chargedAt, work * MOST_MS_OF_UNIT), now);
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
    entry.state = 'over';
    this.forget(entry.flow);
    entry.settle(entry, reason);
  }

  /** The oldest of the longest queue is the one whose client has most likely left. */
  private refuseOfLongest(): void {
    let longest: Flow | undefined;
    for (const flow of this.backlogged) if (!longest || flow.queue.size > longest.queue.size) longest = flow;
    const [oldest] = longest!.queue;
    this.refuse(oldest!, 'full');
  }

  private leaveQueue(entry: Entry): void {
    const { flow } = entry;
    if (!flow.queue.delete(entry)) return;
    this.waiting -= 1;
    if (flow.queue.size === 0) this.backlogged.delete(flow);
  }

  private forget(flow: Flow): void {
    if (!isIdle(flow)) return;
    if (flow.start <= this.virtualTime) this.flows.delete(flow.key);
    if (this.running + this.waiting > 0) return;
    for (const other of this.flows.values()) if (isIdle(other)) this.flows.delete(other.key);
  }
}

function isIdle({ running, expired, queue }: Flow): boolean {
  return running.size + expired + queue.size === 0;
}
