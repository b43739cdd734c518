/** Runs tasks one after another. A task that rejects does not stop the next ones. */
export class Serial {
  private last: Promise<void> = Promise.resolve();

  run(task: () => Promise<unknown>): void {
    this.last = this.after(this.last, task);
  }

  private async after(last: Promise<void>, task: () => Promise<unknown>): Promise<void> {
    await last;
    await task().catch(() => undefined);
  }
}
