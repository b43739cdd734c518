import { SHARED_CPU_MILLIS } from '../../engine/shared-cpu.js';
import { ApiError } from '../../http/errors.js';
import { EventEmitter, on } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { now, shortInstant, type Instant } from '../../lib/instant.js';
import { sleep } from '../../lib/sleep.js';
import { newId } from '../../lib/uuid.js';
import type { CommandEnd, CommandState } from '../../guest/command-end.js';
import {
  PauseRefusedError,
  StartRefusedError,
  type Activity,
  type Capacity,
  type Capture,
  type EnginePauses,
  type Holding,
  type LatePart,
  type LogChunk,
  type LogQuery,
  type Run,
  type Runtime,
} from '../../engine/runtime.js';
import { CAPABILITIES } from '../../spec/capabilities.js';
import { nanosOf } from '../../engine/log-times.js';
import { SimulatedJournal, type SimulatedHolding } from './journal.js';
import { SimulatedArchives } from './snapshot-archives.js';
import { SimulatedSnapshots } from './snapshots.js';

export interface SimulatedOptions {
  startMs?: number;
  stopMs?: number;
  failStart?: (run: Run) => string | undefined;
  capacity?: Partial<Capacity>;
  sharedCpuMillis?: number | undefined;
  /** Keeps the whole history for comparison with the store. Default: false. */
  keepJournal?: boolean;
  /** Called in each pause, which waits for it. */
  beforePause?: (sandboxId: string) => Promise<void>;
  /** Why the memory of a sandbox cannot be saved. Undefined: it can. */
  failPause?: (sandboxId: string) => string | undefined;
  /** Called in each capture, which fails when it throws. */
  onCapture?: (capture: Capture) => Promise<void>;
}

const CAPACITY: Capacity = { vcpus: 100_000, memoryMib: 1024 * 1024 * 1024, diskMib: null };

const LATE_PARTS: readonly LatePart[] = ['command', 'scripts', 'workdir'];
const SYSTEM_TEXT = 'this sandbox is simulated: nothing runs in it, so it writes nothing\n';

/** Keeps the records and times of sandboxes, but runs no processes. */
export class SimulatedRuntime implements Runtime {
  readonly name = 'simulated';
  readonly description = 'simulated: NOTHING RUNS and nothing is isolated; only the records are real';
  readonly capabilities = new Set(CAPABILITIES);
  readonly bounds: Runtime['bounds'];
  readonly diskPath = undefined;
  readonly machine = hostname();
  readonly engineId: string;
  readonly capacity: Capacity;
  readonly snapshots: SimulatedSnapshots;
  readonly pauses: EnginePauses = {
    pause: (sandboxId) => this.pause(sandboxId),
    discard: async (sandboxId) => {
      const held = this.holdings.get(sandboxId);
      if (held?.savedMib !== undefined) this.put({ ...held, savedMib: undefined });
      return Promise.resolve();
    },
  };
  readonly snapshotArchives: SimulatedArchives;

  private holdings = new Map<string, SimulatedHolding>();
  private readonly cpuMicros = new Map<string, number>();
  private readonly commandEnds = new Map<string, CommandEnd>();
  private readonly changes = new EventEmitter().setMaxListeners(0);
  private journal: SimulatedJournal | undefined;

  constructor(
    private readonly directory: string,
    private readonly options: SimulatedOptions = {},
  ) {
    this.snapshots = new SimulatedSnapshots(join(directory, 'snapshots'), {
      holds: (sandboxId) => {
        const { state } = this.holdings.get(sandboxId) ?? {};
        return state === 'running' || state === 'exited';
      },
      onCapture: options.onCapture,
    });
    this.snapshotArchives = new SimulatedArchives(this.snapshots);
    this.engineId = readOrCreateId(join(directory, 'engine-id'));
    const { sharedCpuMillis = SHARED_CPU_MILLIS.default } = options;
    this.bounds = { vcpus: 1024, memoryMib: 16 * 1024 * 1024, smallestMemoryMib: 1, sharedCpuMillis };
    this.capacity = { ...CAPACITY, ...options.capacity };
  }

  async takeOver(term: { readonly valid: boolean }): Promise<void> {
    // Without a journal nothing may end.
    this.holdings = new Map();
    await this.close();
    const { journal, holdings } = await SimulatedJournal.takeOver(
      this.directory,
      term,
      this.options.keepJournal ?? false,
    );
    this.journal = journal;
    this.holdings = holdings;
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    const held = this.holdings.get(run.sandboxId);
    if (held?.runId === run.runId && held.state !== 'prepared') return;
    const { spec: _, secrets: __, resumes = false, ...ids } = run;
    if (resumes && held?.savedMib === undefined)
      throw new StartRefusedError('the memory of its pause is no longer on the disk: start it again');
    // The memory stays until the sandbox runs.
    const kept = resumes ? { savedMib: held?.savedMib, hasHandover: held?.hasHandover ?? false } : {};
    this.put({ ...ids, ...kept, state: 'prepared', startedAt: null, finishedAt: null, exit: null });
    await sleep(this.options.startMs ?? 0, signal);
    if (signal.aborted) return;
    if (run.spec.snapshotId !== undefined && !(await this.snapshots.has(run.spec.snapshotId))) {
      throw new StartRefusedError(`the engine has no disk of the snapshot ${run.spec.snapshotId} any more`);
    }
    const failure = this.options.failStart?.(run);
    if (failure !== undefined) throw new StartRefusedError(failure);
    if (!resumes) this.commandEnds.delete(run.sandboxId);
    const takes = run.isMember === true ? LATE_PARTS : undefined;
    const { memoryMib } = run.spec;
    const running = { state: 'running', startedAt: now(), finishedAt: null, exit: null } as const;
    this.put({ ...ids, ...kept, ...running, savedMib: undefined, memoryMib, takes });
  }

  /** As process 1, which takes one handover in its life. */
  async handOver({ sandboxId, runId }: Run): Promise<void> {
    const held = this.holdings.get(sandboxId);
    if (held?.state !== 'running' || held.runId !== runId) throw new Error('the sandbox does not run');
    if (!held.hasHandover) this.put({ ...held, hasHandover: true });
    return Promise.resolve();
  }

  async stop(sandboxId: string): Promise<void> {
    await sleep(this.options.stopMs ?? 0);
    this.exit(sandboxId, 0);
  }

  async destroy(sandboxId: string): Promise<void> {
    if (!this.holdings.has(sandboxId)) return;
    this.record({ sandboxId, removed: true });
    this.holdings.delete(sandboxId);
    return Promise.resolve();
  }

  async list(): Promise<Holding[]> {
    return Promise.resolve([...this.holdings.values()].map((holding) => ({ ...holding })));
  }

  openGuest(): Promise<never> {
    const message = 'the simulated runtime runs no processes: no command can run in its sandboxes';
    return Promise.reject(new ApiError('not_supported', message));
  }

  async *watch(signal: AbortSignal): AsyncIterable<void> {
    try {
      for await (const _ of on(this.changes, 'change', { signal })) yield;
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async *logs(
    sandboxId: string,
    { sources, after }: LogQuery,
    signal: AbortSignal,
  ): AsyncIterable<Iterable<LogChunk>> {
    const runId = this.holdings.get(sandboxId)?.runId;
    const runs = () => {
      const held = this.holdings.get(sandboxId);
      return held?.runId === runId && held?.state === 'running';
    };
    // The run may end while a caller reads the first chunk.
    const changes = on(this.changes, 'change', { signal });
    try {
      if (!runs()) return;
      const begun = this.holdings.get(sandboxId)?.startedAt ?? now();
      const position = { nanos: nanosOf(begun), bytes: SYSTEM_TEXT.length };
      // One line a run, which a reader that continues has.
      const isNew = after.system === undefined || after.system.nanos < position.nanos;
      if (sources.has('system') && isNew)
        yield [{ source: 'system', ts: shortInstant(begun), text: SYSTEM_TEXT, position }];
      while (runs()) await changes.next();
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      await changes.return?.();
    }
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    const held = sandboxIds.filter((id) => this.holdings.get(id)?.state === 'running');
    return Promise.resolve(new Map(held.map((id) => [id, { cpuMicros: this.cpuMicros.get(id) ?? 0 }])));
  }

  async commandStates(sandboxIds: readonly string[]): Promise<ReadonlyMap<string, CommandState>> {
    const states = sandboxIds.map((id) => [id, this.commandEnds.get(id) ?? 'running'] as const);
    return Promise.resolve(new Map(states));
  }

  async makeRoom(): Promise<void> {}

  async diskUse(): Promise<number | undefined> {
    return Promise.resolve(undefined);
  }

  async close(): Promise<void> {
    this.journal?.close();
    this.journal = undefined;
    return Promise.resolve();
  }

  /** Ends the command of a sandbox, which runs on. */
  endCommand(sandboxId: string, end: CommandEnd): void {
    this.commandEnds.set(sandboxId, end);
    this.changes.emit('change');
  }

  work(sandboxId: string, micros: number): void {
    this.cpuMicros.set(sandboxId, (this.cpuMicros.get(sandboxId) ?? 0) + micros);
  }

  exit(sandboxId: string, code: number, at: Instant = now()): void {
    const held = this.holdings.get(sandboxId);
    if (held?.state !== 'running') return;
    this.put({ ...held, state: 'exited', finishedAt: at, exit: { code, outOfMemory: false } });
  }

  private async pause(sandboxId: string): Promise<void> {
    await this.options.beforePause?.(sandboxId);
    const held = this.holdings.get(sandboxId);
    if (held?.state !== 'running') return;
    const failure = this.options.failPause?.(sandboxId);
    if (failure !== undefined) throw new PauseRefusedError(failure);
    const exit = { code: 0, outOfMemory: false };
    this.put({ ...held, state: 'exited', finishedAt: now(), exit, savedMib: held.memoryMib ?? 0 });
  }

  private put(holding: SimulatedHolding): void {
    this.record(holding);
    this.holdings.set(holding.sandboxId, holding);
    this.changes.emit('change');
  }

  private record(entry: Parameters<SimulatedJournal['write']>[0]): void {
    if (this.journal === undefined) throw new Error('another process acts on the simulated engine');
    this.journal.write(entry);
  }
}

/** When two processes create the file at once, both use the first one. */
function readOrCreateId(path: string): string {
  try {
    if (!existsSync(path)) writeFileAtomicallySync(path, newId(), { replace: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return readFileSync(path, 'utf8').trim();
}
