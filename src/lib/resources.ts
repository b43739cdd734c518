import { sleep } from './sleep.js';

interface Resource {
  name: string;
  close: () => Promise<unknown>;
}

/**
 * Open resources, closed in the reverse order of their opening. A close that takes too long fails, and the next one
 * begins.
 */
export class Resources {
  private opened: Resource[] = [];

  constructor(
    private readonly closeTimeoutMs: number,
    private readonly onError: (error: unknown) => void,
  ) {}

  add(name: string, close: () => Promise<unknown>): void {
    this.opened.push({ name, close });
  }

  async closeAll(): Promise<void> {
    for (const resource of this.opened.splice(0).toReversed()) {
      await this.closeInTime(resource).catch(this.onError);
    }
  }

  private async closeInTime({ name, close }: Resource): Promise<void> {
    const closed = new AbortController();
    const late = async () => {
      await sleep(this.closeTimeoutMs, closed.signal);
      if (!closed.signal.aborted) throw new Error(`${name} did not close within ${this.closeTimeoutMs} ms`);
    };
    await Promise.race([close(), late()]).finally(() => closed.abort());
  }
}
