export interface SlotLimits {
  total: number;
  each: number;
}

interface Limits extends SlotLimits {
  /** An owner that holds less is never over the limit, whatever the others hold. Default: 0. */
  base?: number;
}

/** Gives back what was acquired. Later calls do nothing. */
export type Release = () => void;

/** So much at once, in total and of each owner: connections, commands, bytes of memory. Nothing waits. */
export class Slots {
  private readonly held = new Map<string, number>();
  private all = 0;

  constructor(private readonly limits: Limits) {}

  get free(): number {
    return this.limits.total - this.all;
  }

  heldBy(owner: string): number {
    return this.held.get(owner) ?? 0;
  }

  /** Undefined if the amount would be over a limit. */
  acquire(owner: string, amount = 1): Release | undefined {
    this.add(owner, amount);
    if (this.isOver(owner)) {
      this.add(owner, -amount);
      return undefined;
    }
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.add(owner, -amount);
    };
  }

  /** Counts what is held already, also beyond a limit. `amount`: negative when it is given back. */
  add(owner: string, amount: number): void {
    const left = this.heldBy(owner) + amount;
    if (left < 0) throw new Error('an owner has given back more slots than it held');
    this.all += amount;
    if (left === 0) this.held.delete(owner);
    else this.held.set(owner, left);
  }

  isOver(owner: string): boolean {
    const { total, each, base = 0 } = this.limits;
    const own = this.heldBy(owner);
    return own > each || (this.all > total && own > base);
  }
}
