import type { Duplex } from 'node:stream';
import { sleep } from '../../lib/sleep.js';
import { PortRefusedError } from '../../sandboxes/ports/guest-stream.js';
import type { PreviewTarget } from '../types.js';

const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 250;

/** Waits for servers to listen after the start of their sandbox. The requests for a port share the attempts. */
export class ServerWaits {
  private readonly waits = new Map<string, Promise<void>>();

  constructor(private readonly connect: (target: PreviewTarget) => Promise<Duplex>) {}

  /** Throws as the last attempt. `until`: on the clock of `performance.now`. */
  async listens(target: PreviewTarget, until: number): Promise<void> {
    const key = `${target.sandboxId} ${target.port}`;
    const known = this.waits.get(key);
    if (known) return known;
    const wait = this.attempt(target, until).finally(() => this.waits.delete(key));
    this.waits.set(key, wait);
    return wait;
  }

  private async attempt(target: PreviewTarget, until: number): Promise<void> {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      try {
        (await this.connect(target)).destroy();
        return;
      } catch (error) {
        if (!(error instanceof PortRefusedError) || performance.now() > until) throw error;
      }
      await sleep(pause);
    }
  }
}
