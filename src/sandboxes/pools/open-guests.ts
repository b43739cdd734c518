import type { Context } from '../../context.js';
import { readyOn } from './refill-queries.js';

/** A guest that could not be opened gets another attempt after this time. */
const RETRY_MS = 30_000;

interface Entry {
  /** Undefined: it is being opened, or could not be. */
  release?: () => void;
  retryAt: number;
}

/**
 * Keeps the way into each ready sandbox open: starting its agent takes longer than a first command. The runtime keeps
 * it for a while after a create has taken the sandbox.
 */
export class OpenGuests {
  private readonly held = new Map<string, Entry>();

  get size(): number {
    return this.held.size;
  }

  async pass({ pool, runtime, log }: Pick<Context, 'pool' | 'runtime' | 'log'>): Promise<void> {
    const ready = new Set(await readyOn(pool, runtime.engineId));
    for (const [id, { release }] of this.held) {
      if (ready.has(id)) continue;
      this.held.delete(id);
      release?.();
    }
    for (const id of ready) {
      const known = this.held.get(id);
      if (known && (known.release || performance.now() < known.retryAt)) continue;
      const entry: Entry = { retryAt: performance.now() + RETRY_MS };
      this.held.set(id, entry);
      void this.open(runtime, id, entry).catch((error: unknown) =>
        log.debug({ err: error, sandboxId: id }, 'a guest of a pool was not opened early'),
      );
    }
  }

  close(): void {
    for (const { release } of this.held.values()) release?.();
    this.held.clear();
  }

  private async open(runtime: Context['runtime'], id: string, entry: Entry): Promise<void> {
    const { guest, release } = await runtime.openGuest(id);
    entry.release = release;
    guest.gone.addEventListener('abort', () => this.drop(id, entry), { once: true });
    // A create may have taken it meanwhile.
    if (guest.gone.aborted || this.held.get(id) !== entry) this.drop(id, entry);
  }

  private drop(id: string, entry: Entry): void {
    entry.release?.();
    if (this.held.get(id) === entry) this.held.delete(id);
  }
}
