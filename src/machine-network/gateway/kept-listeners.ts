import { once } from 'node:events';
import { launch } from './launch.js';

/** Unless a program serves by then, queries and connections are refused, so that clients need not wait. */
const HOLD_MS = 2_000;

interface Namespace {
  /** Open. */
  descriptor: number;
  key: string;
}

/**
 * Keeps the listeners of the gateway open by a process that does nothing else. Queries and connections wait in the
 * kernel while one program replaces another. Without it, the kernel refuses them at once, and resolvers of musl, which
 * ignore that, ask again after seconds only.
 */
export class KeptListeners {
  private kept: { key: string; close: () => Promise<string>; isOpen: boolean } | undefined;
  private refusing: NodeJS.Timeout | undefined;

  constructor(private readonly instanceId: string) {}

  /** For a program that starts now. Returns the reason why they cannot be opened. */
  async open(namespace: Namespace): Promise<string | undefined> {
    const { kept } = this;
    if (kept?.isOpen && kept.key === namespace.key) return undefined;
    await this.close();
    const fault = await this.start(namespace);
    if (fault === undefined) this.refuseLater();
    return fault;
  }

  /** A program serves. */
  serve(): void {
    clearTimeout(this.refusing);
    this.refusing = undefined;
  }

  /** The program has ended. Each failed start has the time that is left of the first. */
  refuseLater(): void {
    const { kept } = this;
    this.refusing ??= setTimeout(() => void kept?.close(), HOLD_MS);
  }

  /** The kernel refuses what waits, unless a program has the listeners. */
  async close(): Promise<void> {
    this.serve();
    await this.kept?.close();
    this.kept = undefined;
  }

  private async start({ descriptor, key }: Namespace): Promise<string | undefined> {
    const { child, ended } = launch({ instanceId: this.instanceId, namespace: descriptor });
    const kept = {
      key,
      isOpen: true,
      close: async () => {
        kept.isOpen = false;
        child.kill('SIGKILL');
        return ended;
      },
    };
    this.kept = kept;
    void ended.then(() => (kept.isOpen = false));
    return Promise.race([once(child.stdout!, 'data').then(() => undefined), ended]);
  }
}
