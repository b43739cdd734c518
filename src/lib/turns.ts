/** The time that work takes of each turn of the event loop, in milliseconds. */
const SHARE_MS = 5;

/** Does long work in steps, within a share of each turn of the event loop. Keys alternate; the work of one key keeps its order. */
export class Turns {
  private readonly queues = new Map<string, Iterator<unknown>[]>();
  private spent = 0;
  private isWorking = false;
  private isScheduled = false;

  /** The first steps run before this call returns if the present turn has time left. */
  run(key: string, steps: Iterator<unknown>): void {
    const queue = this.queues.get(key);
    if (queue) queue.push(steps);
    else this.queues.set(key, [steps]);
    if (!this.isWorking) this.work();
  }

  private work(): void {
    this.isWorking = true;
    const begun = performance.now() - this.spent;
    while (this.queues.size > 0 && this.spent < SHARE_MS) {
      const [key, queue] = this.queues.entries().next().value!;
      if (queue[0]!.next().done === true) queue.shift();
      this.queues.delete(key);
      if (queue.length > 0) this.queues.set(key, queue);
      this.spent = performance.now() - begun;
    }
    this.isWorking = false;
    if (!this.isScheduled) setImmediate(() => this.nextTurn());
    this.isScheduled = true;
  }

  private nextTurn(): void {
    this.isScheduled = false;
    this.spent = 0;
    if (this.queues.size > 0) this.work();
  }
}
