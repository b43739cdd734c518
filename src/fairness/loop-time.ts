import { Rotation } from './rotation.js';

/** The time that work takes of each iteration of the event loop, in milliseconds. */
export const SHARE_MS = 1;
/** A step that takes longer leaves later iterations to others. A pause of the process is no debt of the work. */
const MOST_DEBT_MS = 3;

/** Does one step, and returns whether the work is over. */
export type Steps = () => boolean;

/**
 * Divides the time of the event loop: long work is done in steps, within a share of each iteration. Owners take turns
 * with their steps. The work of one owner keeps its order.
 */
export class LoopTime {
  private readonly work = new Rotation<Steps>();
  /** The time spent beyond the shares of past iterations. */
  private debt = 0;
  private isWorking = false;
  private isScheduled = false;

  get waits(): number {
    return this.work.size;
  }

  waitsOf(owner: string): number {
    return this.work.sizeOf(owner);
  }

  /** The first steps are done before this call returns, if no other work waits and this iteration has time left. */
  run(owner: string, steps: Steps): void {
    this.work.add(owner, steps);
    if (!this.isWorking) this.workNow();
  }

  /** Does the work at once if no other waits and this iteration has time left. Returns whether it did. */
  tryNow(work: () => void): boolean {
    if (this.work.size > 0 || this.debt >= SHARE_MS) return false;
    this.measure(work);
    return true;
  }

  /** Counts time that other work takes of this iteration. */
  owe(millis: number): void {
    this.debt = Math.min(this.debt + millis, MOST_DEBT_MS);
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => this.nextIteration());
  }

  private workNow(): void {
    this.isWorking = true;
    try {
      while (this.work.size > 0 && this.debt < SHARE_MS) this.measure(() => this.step());
    } finally {
      this.isWorking = false;
      this.owe(0);
    }
  }

  /** Not within work that is measured: the time would be charged twice. */
  private measure(work: () => void): void {
    const began = performance.now();
    try {
      work();
    } finally {
      this.owe(performance.now() - began);
    }
  }

  /** A step that throws is the last of its work. */
  private step(): void {
    const [owner, steps] = this.work.peek()!;
    let isOver = true;
    try {
      isOver = steps();
    } finally {
      if (isOver) this.work.delete(owner, steps);
      this.work.pass(owner);
    }
  }

  private nextIteration(): void {
    this.isScheduled = false;
    this.debt = Math.max(0, this.debt - SHARE_MS);
    if (this.work.size > 0) this.workNow();
    else if (this.debt > 0) this.owe(0);
  }
}
