import type { Pace } from './pace.js';

/** The time that work takes of each turn of the event loop, in milliseconds. */
export const SHARE_MS = 1;
/** The whole work for the data of a step, in the engine, the service, the kernel and the client, and a fixed time. */
const TRANSPORT = 8;
const STEP_COST_MS = 0.8;
/** More says that the process was paused. */
const MAX_STEP_MS = 25;

/** Does long work in steps, within a share of each turn of the event loop. Keys alternate; the work of one key keeps its order. */
export class Turns {
  private readonly queues = new Map<string, Iterator<unknown>[]>();
  private spent = 0;
  private isWorking = false;
  private isScheduled = false;

  constructor(private readonly pace?: Pace) {}

  /** The first steps run before this call returns if the present turn has time left. */
  run(key: string, steps: Iterator<unknown>): void {
    const queue = this.queues.get(key);
    if (queue) queue.push(steps);
    else this.queues.set(key, [steps]);
    if (!this.isWorking) this.work();
  }

  /**
   * Does one step, and resolves when its key has time for the next. Callers of one key alternate. `afterMs`: the time of the
   * work that follows from the step in the same turn.
   */
  async step<T>(key: string, step: () => T, afterMs = 0): Promise<T> {
    const took = { millis: 0 };
    const result = await this.once(key, () => {
      const start = performance.now();
      try {
        return step();
      } finally {
        took.millis = performance.now() - start;
        this.spent += afterMs;
      }
    });
    const millis = Math.min(took.millis, MAX_STEP_MS) * TRANSPORT + STEP_COST_MS + afterMs;
    await this.pace?.rest(key, millis);
    return result;
  }

  /** Does one step as soon as a turn has time for it. */
  async once<T>(key: string, step: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const next = () => {
        try {
          resolve(step());
        } catch (error) {
          reject(error);
        }
        return { done: true, value: undefined } as const;
      };
      this.run(key, { next });
    });
  }

  private work(): void {
    this.isWorking = true;
    try {
      while (this.queues.size > 0 && this.spent < SHARE_MS) {
        const begun = performance.now();
        this.workFor(this.queues.entries().next().value!);
        this.spent += performance.now() - begun;
      }
    } finally {
      this.isWorking = false;
      if (!this.isScheduled) setImmediate(() => this.nextTurn());
      this.isScheduled = true;
    }
  }

  /** Steps that throw are over. */
  private workFor([key, queue]: [string, Iterator<unknown>[]]): void {
    const steps = queue.shift()!;
    let isDone = true;
    try {
      isDone = steps.next().done === true;
    } finally {
      if (!isDone) queue.unshift(steps);
      this.queues.delete(key);
      if (queue.length > 0) this.queues.set(key, queue);
    }
  }

  private nextTurn(): void {
    this.isScheduled = false;
    this.spent = 0;
    if (this.queues.size > 0) this.work();
  }
}
