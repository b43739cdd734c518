interface Claim<T> {
  value: T;
  /** By `performance.now()`. Infinity: the start is under way, and no list has it yet. */
  since: number;
}

/**
 * Parts of the machine that a virtual machine has for itself, by sandboxes. A claim is made before the supervisor
 * starts. After the start, the claims are those in the directories of the sandboxes.
 */
export class RunClaims<T> {
  private readonly claims = new Map<string, Claim<T>>();

  entries(): (readonly [sandboxId: string, value: T])[] {
    return [...this.claims].map(([sandboxId, { value }]) => [sandboxId, value] as const);
  }

  claim(sandboxId: string, value: T): void {
    this.claims.set(sandboxId, { value, since: Infinity });
  }

  /** The start is over: the virtual machine has a record, or it has ended. */
  settle(sandboxId: string): void {
    const claim = this.claims.get(sandboxId);
    if (claim) claim.since = performance.now();
  }

  /** `running`: the claims in a list of all sandboxes that run, which was begun at `listedAt`. */
  keep(running: ReadonlyMap<string, T>, listedAt: number): void {
    for (const [sandboxId, { since }] of this.claims)
      if (since < listedAt && !running.has(sandboxId)) this.claims.delete(sandboxId);
    for (const [sandboxId, value] of running) {
      const since = this.claims.get(sandboxId)?.since ?? -Infinity;
      if (since < listedAt) this.claims.set(sandboxId, { value, since });
    }
  }

  release(sandboxId: string): void {
    this.claims.delete(sandboxId);
  }
}
