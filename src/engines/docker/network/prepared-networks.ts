import type Docker from 'dockerode';
import { randomBytes } from 'node:crypto';
import { isRunning } from './repair.js';
import {
  inspectPauseContainer,
  ownerOf,
  pauseContainerName,
  removePauseContainer,
  type PauseContainerOptions,
} from './pause-container.js';
import type { PausePlacement } from './pause-placement.js';

const PREFIX = 'prepared-';
/** Starts come in bursts. The preparation of the next network would take the processors from them. */
const CALM_MS = 500;
/** After an engine that refused one. */
const RETRY_MS = 30_000;

interface PreparedNetworksOptions {
  count: number;
  placement: PausePlacement;
  common: Pick<PauseContainerOptions, 'instanceId' | 'init'>;
}

/**
 * Pause containers that run before a sandbox needs them. A start takes one by renaming it, which saves the start of a
 * container. Nothing else has run in them, and no rules are loaded yet. See docs/decisions/0012.
 */
export class PreparedNetworks {
  private readonly ready = new Set<string>();
  /** Those of `ready` that the latest list does not show. */
  private readonly missed = new Set<string>();
  /** Taken, or being made or removed: lists of the engine may be older. */
  private readonly changing = new Set<string>();
  private lastUse = performance.now();
  private retryAt = 0;
  private making: Promise<void> | undefined;
  private isClosed = false;

  constructor(
    private readonly docker: Docker,
    private readonly options: PreparedNetworksOptions,
  ) {}

  /** Undefined: none is ready. Otherwise it runs, and has the name of the pause container of `sandboxId`. */
  async take(sandboxId: string): Promise<Docker.ContainerInspectInfo | undefined> {
    this.lastUse = performance.now();
    for (const id of this.ready) {
      this.ready.delete(id);
      this.missed.delete(id);
      this.changing.add(id);
      try {
        // By its name, which fails when another process has renamed it.
        const container = this.docker.getContainer(pauseContainerName(id));
        await container.rename({ name: pauseContainerName(sandboxId) });
        const found = await inspectPauseContainer(this.docker, sandboxId);
        if (found?.State.Running) return found;
        if (found) await removePauseContainer(this.docker, sandboxId);
      } catch {
        // No start fails for the lack of a prepared network. Somebody has removed this one, or another process took it.
      } finally {
        this.changing.delete(id);
      }
    }
    return undefined;
  }

  /** `pauses`: all of a list of the engine. `isCalm`: no start is under way. */
  note(pauses: readonly Docker.ContainerInfo[], isCalm: boolean): void {
    const listed = new Map(
      pauses.flatMap((container) => {
        const id = ownerOf(container);
        return id !== undefined && isPrepared(id) ? [[id, container] as const] : [];
      }),
    );
    for (const id of this.ready) {
      if (isRunning(listed.get(id))) this.missed.delete(id);
      // One list may be older than the network.
      else if (!this.missed.delete(id)) this.missed.add(id);
      else this.ready.delete(id);
    }
    for (const id of listed.keys()) {
      // A killed process left it, perhaps on a network that the operator has replaced since. Or it has just been
      // renamed: then its old name leads nowhere.
      if (!this.changing.has(id) && !this.ready.has(id)) void this.remove(id);
    }
    if (!isCalm) this.lastUse = performance.now();
    this.refill();
  }

  /** Removes them: nobody else needs them. */
  async close(): Promise<void> {
    this.isClosed = true;
    await this.making;
    await Promise.all([...this.ready].map(async (id) => this.remove(id)));
  }

  private refill(): void {
    const now = performance.now();
    if (this.isClosed || this.making || this.ready.size >= this.options.count) return;
    if (now < this.retryAt || now - this.lastUse < CALM_MS) return;
    this.making = this.make()
      // Starts go on without. They report the reason if it concerns them.
      .catch(() => void (this.retryAt = performance.now() + RETRY_MS))
      .finally(() => {
        this.making = undefined;
        this.refill();
      });
  }

  private async make(): Promise<void> {
    const { placement, common } = this.options;
    const id = PREFIX + randomBytes(6).toString('hex');
    this.changing.add(id);
    try {
      const wanted = { ...common, sandboxId: id, hostname: id };
      await placement.create(wanted);
      await placement.start(wanted, undefined);
      this.ready.add(id);
    } catch (error) {
      await removePauseContainer(this.docker, id).catch(() => undefined);
      throw error;
    } finally {
      this.changing.delete(id);
    }
  }

  private async remove(id: string): Promise<void> {
    this.ready.delete(id);
    this.changing.add(id);
    await removePauseContainer(this.docker, id)
      // The next list has it again.
      .catch(() => undefined)
      .finally(() => this.changing.delete(id));
  }
}

export function isPrepared(id: string): boolean {
  return id.startsWith(PREFIX);
}
