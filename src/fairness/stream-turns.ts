import { LoopTime } from './loop-time.js';
import type { Pace } from './pace.js';

/** The event loop copies about 600 MiB a second (`npm run bench -- previews`). */
const MS_PER_BYTE = 1_000 / (600 * 1_048_576);
/** The kernel, the client and the server in the sandbox handle the same bytes. */
const TRANSPORT = 2;
/** Each chunk costs about 3 µs, however short it is. */
const LEAST_BYTES = 2_048;
/** A short answer never waits: its request has had a turn. */
const FREE_BYTES = 128 * 1024;

/**
 * Divides the time of the event loop between the bytes of organizations. Without it, one iteration copies for every
 * connection that has bytes. All other work has a fixed share of each iteration, and would wait for seconds.
 */
export class StreamTurns {
  private readonly time = new LoopTime();

  constructor(private readonly pace?: Pace) {}

  /** For one exchange. The returned function gets the bytes of each chunk. It returns the wait for the next, if any. */
  of(owner: string): (bytes: number) => Promise<void> | undefined {
    let free = FREE_BYTES;
    return (bytes) => {
      const cost = Math.max(bytes, LEAST_BYTES);
      free -= cost;
      return free < 0 ? this.turn(owner, cost) : undefined;
    };
  }

  private async turn(owner: string, bytes: number): Promise<void> {
    const millis = bytes * MS_PER_BYTE;
    await new Promise<void>((resolve) => {
      this.time.run(owner, () => {
        this.time.owe(millis);
        resolve();
        return true;
      });
    });
    await this.pace?.rest(owner, millis * TRANSPORT);
  }
}
