import { LoopTime } from './loop-time.js';
import type { Pace } from './pace.js';

/**
 * A step is charged its time in this process times this factor: the engine, the kernel and the client handle the same
 * data. A fixed time is added, because a short step also costs a read, a write and a wake-up.
 */
const TRANSPORT = 8;
const STEP_COST_MS = 0.8;
/** A longer step says that the process was paused. */
const MAX_STEP_MS = 25;

/** Steps of streams and of long answers: within the time of the event loop, and at the pace of their owner. */
export class PacedSteps {
  private readonly time = new LoopTime();

  constructor(private readonly pace?: Pace) {}

  /** Does work that begins before this call returns, if the iteration has time left. */
  run(owner: string, steps: Iterator<unknown>): void {
    this.time.run(owner, () => steps.next().done === true);
  }

  /**
   * Does one step, and resolves when its owner has time for the next. Callers of one owner alternate. `afterMs`: the
   * time of the work that follows from the step in the same iteration.
   */
  async step<T>(owner: string, step: () => T, afterMs = 0): Promise<T> {
    let millis = 0;
    const result = await this.once(owner, () => {
      const start = performance.now();
      try {
        return step();
      } finally {
        millis = performance.now() - start;
        this.time.owe(afterMs);
      }
    });
    await this.pace?.rest(owner, Math.min(millis, MAX_STEP_MS) * TRANSPORT + STEP_COST_MS + afterMs);
    return result;
  }

  /** Does one step as soon as an iteration has time for it. */
  async once<T>(owner: string, step: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.time.run(owner, () => {
        try {
          resolve(step());
        } catch (error) {
          reject(error);
        }
        return true;
      });
    });
  }
}
