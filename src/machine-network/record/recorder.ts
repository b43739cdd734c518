import type { GatewayServices } from '../../engine/definition.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import type { Evaluator } from '../../network-policy/evaluate.js';
import type { NetworkNamespace } from '../namespace.js';
import { readCounters } from './read-counters.js';
import { SandboxTraffic } from './traffic.js';

/**
 * Below a minute, so that each minute has its own part. A reading takes 7 ms of a processor, and 70 ms with full sets.
 */
const READ_EVERY_MS = 20_000;

interface Counting {
  /** Undefined: names decide too, and the kernel does not know them. */
  evaluator: Evaluator | undefined;
}

interface Known {
  namespace: NetworkNamespace;
  /** Undefined: it has no counters. */
  traffic: SandboxTraffic | undefined;
  /** The counters began with this process. */
  begun: boolean;
  /** By `performance.now()`. */
  knownAt: number;
}

export interface RecordedEngine {
  /** The ids of the sandboxes whose namespace exists. */
  list(): Promise<string[]>;
  /** Undefined: the sandbox has none. */
  find(sandboxId: string): Promise<NetworkNamespace | undefined>;
}

/**
 * Reads the counters of the sandboxes whose network is recorded, and reports the differences. The namespace of a
 * sandbox has them, and outlives its run, so that they can be read after its end.
 */
export class TrafficRecorder {
  private readonly known = new Map<string, Known>();
  private readonly reading = new Map<string, Promise<void>>();
  private loop: Loop | undefined;

  constructor(
    private readonly engine: RecordedEngine,
    private readonly observer: Pick<GatewayServices, 'denied' | 'flows'>,
  ) {}

  /** Before a run: its counters begin with 0. `counting`: undefined when it has none. */
  begin(sandboxId: string, namespace: NetworkNamespace, counting: Counting | undefined): void {
    const traffic = counting && new SandboxTraffic(sandboxId, counting.evaluator, Date.now());
    this.known.set(sandboxId, { namespace, traffic, begun: true, knownAt: performance.now() });
  }

  /** Reads all of them regularly while `term` is valid. */
  start(term: { readonly valid: boolean }): void {
    void this.loop?.stop();
    this.loop = startLoop(async (signal) => (term.valid ? this.readAll(signal) : undefined), {
      intervalMs: READ_EVERY_MS,
      maxBackoffMs: READ_EVERY_MS,
      // `list` reports a lost engine.
      onError: () => undefined,
    });
  }

  /** Once more before the namespace of a sandbox ends. Its counters are lost with it. */
  async finish(sandboxId: string): Promise<void> {
    if (this.known.get(sandboxId)?.traffic) await this.read(sandboxId);
    this.known.delete(sandboxId);
  }

  async close(): Promise<void> {
    await this.loop?.stop();
    await Promise.all(this.reading.values());
  }

  private async readAll(signal: AbortSignal): Promise<void> {
    const listedAt = performance.now();
    const ids = await this.engine.list();
    for (const [id, { knownAt }] of this.known) {
      // The list may be older than the latest start.
      if (knownAt < listedAt && !ids.includes(id)) this.known.delete(id);
    }
    for (const id of ids) {
      if (signal.aborted) return;
      if (!this.known.has(id)) await this.find(id);
      if (this.known.get(id)?.traffic) await this.read(id);
    }
  }

  /** A sandbox that an earlier process started. */
  private async find(sandboxId: string): Promise<void> {
    const namespace = await this.engine.find(sandboxId);
    if (!namespace) return;
    const hasCounters = (await readCounters(namespace)) !== undefined;
    // It may have begun meanwhile.
    if (this.known.has(sandboxId)) return;
    const traffic = hasCounters ? new SandboxTraffic(sandboxId, undefined, Date.now()) : undefined;
    this.known.set(sandboxId, { namespace, traffic, begun: false, knownAt: performance.now() });
  }

  /** Two readings at once could count twice. */
  private async read(sandboxId: string): Promise<void> {
    const before = this.reading.get(sandboxId);
    const work = (async () => {
      await before;
      const known = this.known.get(sandboxId);
      if (!known?.traffic) return;
      const counters = await readCounters(known.namespace);
      if (!counters) return;
      const { flows, denials } = known.traffic.take(counters, Date.now(), known.begun);
      this.observer.flows(flows);
      for (const denial of denials) this.observer.denied(denial);
    })();
    this.reading.set(sandboxId, work);
    await work.finally(() => {
      if (this.reading.get(sandboxId) === work) this.reading.delete(sandboxId);
    });
  }
}
