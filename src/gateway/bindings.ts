import { EndQueue } from './end-queue.js';

/**
 * `ofAddress`: a connection that shows no name is judged by all names of its address, which takes a millisecond at
 * most.
 */
export const BINDINGS = { ofSandbox: 16_384, ofName: 1_024, ofAddress: 256 };
const SHORTEST_SECS = 1;
/** Resolvers keep no answer for longer either. */
const LONGEST_SECS = 86_400;
/** Renewals leave old entries in the queue. The queue is made anew when they are more than the bindings and this. */
const MOST_OLD_ENTRIES = 1_024;

/** The lifetime of an answer, within the bounds of a binding. The guest and the kernel get the same one. */
export function lifetimeOf(ttlSecs: number): number {
  return Math.min(LONGEST_SECS, Math.max(SHORTEST_SECS, ttlSecs));
}

/**
 * The names that a sandbox resolved, and their addresses, each for the lifetime of its answer. Beyond the bounds the
 * binding that ends first gives way. A sandbox can so only shorten bindings of its own, and a crawler that resolves
 * thousands of names goes on.
 */
export class Bindings {
  /** By name, then by address: the end in milliseconds since 1970. */
  private readonly ends = new Map<string, Map<string, number>>();
  private readonly names = new Map<string, Set<string>>();
  private readonly queue = new EndQueue<{ name: string; address: string }>();
  private count = 0;

  constructor(private readonly now: () => number = Date.now) {}

  get size(): number {
    return this.count;
  }

  /** `name` is canonical. An earlier answer with a later end stays valid until that end. */
  bind(name: string, addresses: readonly string[], ttlSecs: number): void {
    const end = this.now() + lifetimeOf(ttlSecs) * 1_000;
    this.removeEnded();
    for (const address of addresses) this.add(name, address, end);
    if (this.queue.size > 2 * this.count + MOST_OLD_ENTRIES) this.renewQueue();
  }

  /** Whether the sandbox resolved the name to this address. */
  has(name: string, address: string): boolean {
    return (this.ends.get(name)?.get(address) ?? 0) > this.now();
  }

  /** The names that the sandbox resolved to this address. */
  namesOf(address: string): string[] {
    return [...(this.names.get(address) ?? [])].filter((name) => this.has(name, address));
  }

  private add(name: string, address: string, end: number): void {
    const known = this.ends.get(name)?.get(address);
    if (known !== undefined && known >= end) return;
    if (known === undefined) this.makeRoom(name, address);
    const ofName = this.ends.get(name) ?? new Map<string, number>();
    this.ends.set(name, ofName.set(address, end));
    this.names.set(address, (this.names.get(address) ?? new Set()).add(name));
    if (known === undefined) this.count += 1;
    this.queue.add(end, { name, address });
  }

  private makeRoom(name: string, address: string): void {
    const ofName = this.ends.get(name);
    if (ofName && ofName.size >= BINDINGS.ofName) this.remove(name, leastOf(ofName));
    const names = this.names.get(address);
    if (names && names.size >= BINDINGS.ofAddress)
      this.remove(leastOf(Array.from(names, (each) => [each, this.ends.get(each)!.get(address)!])), address);
    while (this.count >= BINDINGS.ofSandbox) this.removeFirst();
  }

  private removeEnded(): void {
    const now = this.now();
    for (let first; (first = this.queue.first()) && first.end <= now;) this.removeFirst();
  }

  /** Removes the first entry of the queue, and its binding unless a later answer has renewed that. */
  private removeFirst(): void {
    const { end, item } = this.queue.first()!;
    this.queue.removeFirst();
    if (this.ends.get(item.name)?.get(item.address) === end) this.remove(item.name, item.address);
  }

  private remove(name: string, address: string): void {
    const ofName = this.ends.get(name);
    if (ofName?.delete(address) !== true) return;
    this.count -= 1;
    if (ofName.size === 0) this.ends.delete(name);
    const names = this.names.get(address);
    names?.delete(name);
    if (names?.size === 0) this.names.delete(address);
  }

  private renewQueue(): void {
    this.queue.clear();
    for (const [name, addresses] of this.ends)
      for (const [address, end] of addresses) this.queue.add(end, { name, address });
  }
}

/** The key with the first end. */
function leastOf(ends: Iterable<[string, number]>): string {
  return [...ends].reduce((least, each) => (each[1] < least[1] ? each : least))[0];
}
