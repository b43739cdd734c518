import type { Logger } from 'pino';
import type { CommandState } from '../guest/command-end.js';
import type { EngineDefinition } from './definition.js';
import { startLoop, type Loop } from '../lib/loop.js';
import type { RemovedBytes } from './removed-files.js';
import {
  EngineUnavailableError,
  type Activity,
  type EngineState,
  type Holding,
  type LogChunk,
  type LogQuery,
  type PortPlace,
  type Run,
  type Runtime,
} from './runtime.js';

const RETRY_MS = 1_000;
const MAX_BACKOFF_MS = 10_000;

/** Connects and reconnects to its engine in the background. */
export class ReconnectingRuntime implements Runtime {
  private state: EngineState;
  private connected: Runtime | undefined;
  private readonly attempts: Loop | undefined;
  private readonly waiting = new Set<() => void>();

  readonly name: string;

  constructor(
    private readonly engineKind: Pick<EngineDefinition, 'name' | 'hasVolumeDirectories'>,
    first: Runtime | { reason: string },
    connect: () => Promise<Runtime>,
    private readonly explain: (error: unknown) => string,
    private readonly log: Logger,
  ) {
    const { name } = engineKind;
    this.name = name;
    if (!('reason' in first)) {
      this.connected = first;
      this.state = { state: 'up', reason: null };
      return;
    }
    this.state = { state: 'connecting', reason: first.reason };
    log.error({ runtime: name, reason: first.reason }, 'the engine does not answer; retrying');
    this.attempts = startLoop(
      async () => {
        this.connected = await connect();
        this.noteUp();
        void this.attempts?.stop();
        for (const wake of this.waiting) wake();
      },
      {
        intervalMs: RETRY_MS,
        maxBackoffMs: MAX_BACKOFF_MS,
        onError: (error) => (this.state = { state: 'connecting', reason: explain(error) }),
      },
    );
  }

  get engine(): EngineState {
    return this.state;
  }
  get engineId(): string {
    return this.inner.engineId;
  }
  get machine(): string {
    return this.inner.machine;
  }
  get diskPath(): string | undefined {
    return this.connected?.diskPath;
  }
  get capacity(): Runtime['capacity'] {
    return this.inner.capacity;
  }
  get placesRuns(): boolean {
    return this.connected?.placesRuns ?? false;
  }
  get pullsEachStart(): boolean {
    return this.connected?.pullsEachStart ?? false;
  }
  get opensGuestsEarly(): boolean {
    return this.connected?.opensGuestsEarly ?? false;
  }

  get listsSome(): boolean {
    return this.connected?.listsSome ?? false;
  }
  get capabilities(): Runtime['capabilities'] {
    return this.inner.capabilities;
  }
  get bounds(): Runtime['bounds'] {
    return this.inner.bounds;
  }
  /** Directories of this machine can be used with or without the engine. */
  get volumes(): Runtime['volumes'] {
    return this.engineKind.hasVolumeDirectories ? undefined : this.inner.volumes;
  }
  get pauses(): Runtime['pauses'] {
    return this.inner.pauses;
  }

  get snapshots(): Runtime['snapshots'] {
    return this.inner.snapshots;
  }
  get snapshotArchives(): Runtime['snapshotArchives'] {
    return this.inner.snapshotArchives;
  }
  get description(): string {
    return this.connected?.description ?? `${this.name}: ${this.state.reason}`;
  }

  get warnings(): Runtime['warnings'] {
    return this.connected?.warnings;
  }

  async takeOver(term: { readonly valid: boolean }): Promise<void> {
    return this.inner.takeOver(term);
  }

  async leave(): Promise<void> {
    await this.connected?.leave?.();
  }

  async changeSecrets(run: Pick<Run, 'orgId' | 'sandboxId' | 'spec' | 'secrets'>): Promise<void> {
    await this.inner.changeSecrets?.(run);
  }

  async latestDigest(run: Run, signal: AbortSignal): Promise<string | undefined> {
    return this.inner.latestDigest?.(run, signal);
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    return this.inner.start(run, signal);
  }

  async handOver(run: Run, signal: AbortSignal): Promise<void> {
    await this.inner.handOver?.(run, signal);
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    return this.inner.stop(sandboxId, graceMs);
  }

  async dropRecord(held: Holding): Promise<void> {
    await this.inner.dropRecord?.(held);
  }

  async destroy(sandboxId: string): Promise<void> {
    return this.inner.destroy(sandboxId);
  }

  /** Also detects whether the engine answers, because the reconciler calls it regularly. */
  async list(sandboxIds?: ReadonlySet<string>): Promise<Holding[]> {
    try {
      const holdings = await this.inner.list(sandboxIds);
      if (this.state.state === 'away') this.noteUp();
      return holdings;
    } catch (error) {
      if (this.connected) this.state = { state: 'away', reason: this.explain(error) };
      throw error;
    }
  }

  unanswered(): ReturnType<NonNullable<Runtime['unanswered']>> {
    return this.connected?.unanswered?.() ?? new Map();
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    return this.inner.activity(sandboxIds);
  }

  async commandStates(sandboxIds: readonly string[]): Promise<ReadonlyMap<string, CommandState>> {
    return (await this.inner.commandStates?.(sandboxIds)) ?? new Map<string, CommandState>();
  }

  async makeRoom(): Promise<void> {
    await this.inner.makeRoom();
  }

  async diskUse(sandboxId: string): Promise<number | undefined> {
    return this.inner.diskUse(sandboxId);
  }

  async removedBytes(sandboxId: string, signal: AbortSignal): Promise<RemovedBytes | undefined> {
    return this.inner.removedBytes?.(sandboxId, signal);
  }

  logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<Iterable<LogChunk>> {
    return this.inner.logs(sandboxId, query, signal);
  }

  async openGuest(sandboxId: string): ReturnType<Runtime['openGuest']> {
    return this.inner.openGuest(sandboxId);
  }

  async connectPort(place: PortPlace, signal: AbortSignal): ReturnType<NonNullable<Runtime['connectPort']>> {
    return this.inner.connectPort?.(place, signal);
  }

  async *watch(signal: AbortSignal): ReturnType<Runtime['watch']> {
    await this.untilConnected(signal);
    if (this.connected) yield* this.connected.watch(signal);
  }

  async close(): Promise<void> {
    await this.attempts?.stop();
    await this.connected?.close();
  }

  private get inner(): Runtime {
    if (!this.connected) throw new EngineUnavailableError(this.name, this.state.reason);
    return this.connected;
  }

  private noteUp(): void {
    this.state = { state: 'up', reason: null };
    this.log.info({ runtime: this.name }, 'the engine answers');
  }

  private async untilConnected(signal: AbortSignal): Promise<void> {
    if (this.connected || signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.waiting.add(resolve);
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
}
