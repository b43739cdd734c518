/** A caller that stops a sandbox to change something starts it again within this time. */
const LINGER_MS = 5 * 60_000;

/**
 * Networks that stay up for a while after their sandbox has stopped, so that its next start need not start a container
 * for them. Nothing runs in them, and the next start loads its rules before the sandbox runs.
 */
export class LingeringNetworks {
  private readonly plain = new Set<string>();
  /** Oldest first, by `performance.now()`. */
  private readonly since = new Map<string, number>();

  constructor(private readonly most: number) {}

  /** `isPlain`: its network needs nothing of the machine that a stop gives back, such as published ports. */
  started(sandboxId: string, isPlain: boolean): void {
    this.since.delete(sandboxId);
    if (isPlain && this.most > 0) this.plain.add(sandboxId);
    else this.plain.delete(sandboxId);
  }

  /** Whether the network of a stopped sandbox stays up. The latest ones stay: the oldest end for them. */
  keeps(sandboxId: string): boolean {
    if (!this.plain.has(sandboxId)) return false;
    const began = this.since.get(sandboxId);
    if (began === undefined) {
      this.since.set(sandboxId, performance.now());
      for (const oldest of this.since.keys()) if (this.since.size > this.most) this.forget(oldest);
      return this.plain.has(sandboxId);
    }
    if (performance.now() - began < LINGER_MS) return true;
    this.forget(sandboxId);
    return false;
  }

  forget(sandboxId: string): void {
    this.plain.delete(sandboxId);
    this.since.delete(sandboxId);
  }
}
