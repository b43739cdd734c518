import { watch } from 'node:fs';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { removedBytes, type RemovedBytes } from '../../engine/removed-files.js';
import {
  PauseRefusedError,
  type Activity,
  type Capacity,
  type EnginePauses,
  type Holding,
  type LogChunk,
  type LogQuery,
  type Run,
  type Runtime,
} from '../../engine/runtime.js';
import type { CommandState } from '../../guest/command-end.js';
import { instantFromMicros } from '../../lib/instant.js';
import { sleep } from '../../lib/sleep.js';
import { newId } from '../../lib/uuid.js';
import type { Capability } from '../../spec/capabilities.js';
import { CAPABILITIES, volumeCapabilities } from './capabilities.js';
import { endMachine, untilEnded } from './end-machine.js';
import { MicrovmGuests } from './guests.js';
import { heldSandboxes, holdingOf, readHeld, type HeldSandbox } from './holdings.js';
import { followOutput } from './output-log.js';
import type { MicrovmParts } from './parts.js';
import { placesOf, sandboxesDirectory } from './places.js';
import { transfersOf, useOf } from './processes.js';
import { discardSaved, memoryFile, mostSavedMib } from './saved-memory.js';
import { DiskCaptures } from './snapshots/disk-captures.js';
import { VmArchives } from './snapshots/vm-archives.js';
import { VmStarts } from './starts.js';
import type { RunningNetwork } from './network/vm-networks.js';
import { askUse, DESCRIPTOR, requestSave } from './supervisor.js';

/** After this time the output is read again, also where the kernel reports no change. */
const LOOK_MS = 1_000;

export interface MicrovmRuntimeOptions {
  parts: MicrovmParts;
  engineId: string;
  machine: string;
  capacity: Capacity;
  bounds: Runtime['bounds'];
  description: string;
  warnings: readonly string[] | undefined;
}

/**
 * Runs sandboxes as virtual machines. Each has a directory with its disk, and while it runs a supervisor that outlives
 * this process and keeps the record of the run. This class only starts supervisors, asks them, and reads their records.
 */
export class MicrovmRuntime implements Runtime {
  readonly name = 'microvm';
  readonly engineId: string;
  readonly machine: string;
  readonly diskPath: string;
  readonly capacity: Capacity;
  readonly bounds: Runtime['bounds'];
  readonly description: string;
  readonly warnings: readonly string[] | undefined;
  readonly capabilities: ReadonlySet<Capability>;
  /** An agent is a process of the sandbox, and costs nothing of an engine. */
  readonly opensGuestsEarly = true;
  readonly pauses: EnginePauses = {
    pause: (sandboxId) => this.pause(sandboxId),
    discard: async (sandboxId) => {
      await discardSaved(placesOf(this.parts.directory, sandboxId));
      this.parts.imageUses.claims.release(sandboxId);
      this.parts.changes.announce();
    },
  };

  readonly snapshots: DiskCaptures;
  readonly snapshotArchives: VmArchives;

  private readonly parts: MicrovmParts;
  private readonly starts: VmStarts;
  private readonly guests = new MicrovmGuests();
  /** As the latest list found them. */
  private running: ReadonlyMap<string, HeldSandbox> = new Map();

  constructor({ parts, engineId, machine, capacity, bounds, description, warnings }: MicrovmRuntimeOptions) {
    this.parts = parts;
    this.engineId = engineId;
    this.machine = machine;
    this.diskPath = sandboxesDirectory(parts.directory);
    this.capacity = capacity;
    this.bounds = bounds;
    this.description = description;
    this.warnings = warnings;
    this.snapshots = new DiskCaptures(parts);
    this.snapshotArchives = new VmArchives(parts);
    this.starts = new VmStarts(parts, this.snapshots);
    this.capabilities = new Set([
      ...CAPABILITIES,
      ...volumeCapabilities(parts),
      ...parts.networks.capabilities,
    ]);
  }

  async takeOver(term: { readonly valid: boolean }): Promise<void> {
    this.parts.networks.takeOver(term);
    this.running = new Map();
    await rm(this.removedDirectory, { recursive: true, force: true });
    await this.parts.images.removeLeftovers();
    await this.snapshotArchives.machines.removeLeftovers();
    await this.list();
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    await this.starts.start(run, signal);
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    const held = await readHeld(this.parts.directory, sandboxId);
    if (held?.record === undefined || !held.isAlive) return;
    await endMachine(held.places, held.record, graceMs);
    await this.ended(sandboxId);
    this.parts.imageUses.claims.release(sandboxId);
    this.parts.folderUses.claims.release(sandboxId);
  }

  async changeSecrets(run: Pick<Run, 'orgId' | 'sandboxId' | 'spec' | 'secrets'>): Promise<void> {
    this.parts.networks.changeSecrets(run);
    return Promise.resolve();
  }

  /** The images of disks stay those of the sandbox, whose memory knows what is in them. */
  private async pause(sandboxId: string): Promise<void> {
    const held = await readHeld(this.parts.directory, sandboxId);
    if (held?.record === undefined || !held.isAlive) return;
    const memoryMib = held.run?.memoryMib;
    if (memoryMib === undefined)
      throw new PauseRefusedError('an earlier release has started it: restart it, and pause it then');
    if (held.run?.folders !== undefined)
      throw new PauseRefusedError('the memory of a sandbox that mounts volumes cannot be saved: stop it');
    await requestSave(held.places.run, mostSavedMib(memoryMib) * MIB);
    await untilEnded(held.places, held.record);
    await this.ended(sandboxId);
  }

  private async ended(sandboxId: string): Promise<void> {
    await this.parts.networks.finish(sandboxId);
    this.parts.users.claims.release(sandboxId);
    this.parts.changes.announce();
  }

  async destroy(sandboxId: string): Promise<void> {
    await this.stop(sandboxId, 0);
    this.parts.groups?.remove(sandboxId);
    const { directory } = placesOf(this.parts.directory, sandboxId);
    // In one step: a directory without its first files would belong to nobody.
    const removed = join(this.removedDirectory, newId());
    await mkdir(this.removedDirectory, { recursive: true, mode: 0o700 });
    try {
      await rename(directory, removed);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      return;
    }
    await rm(removed, { recursive: true, force: true });
  }

  async list(): Promise<Holding[]> {
    const listedAt = performance.now();
    const held = await heldSandboxes(this.parts.directory);
    const running = held.filter((sandbox) => sandbox.isAlive);
    this.running = new Map(running.map((sandbox) => [sandbox.identity.sandboxId, sandbox]));
    const runs = running.flatMap(({ identity, run }) => (run ? [[identity.sandboxId, run] as const] : []));
    this.parts.users.claims.keep(new Map(runs.map(([id, { user }]) => [id, user])), listedAt);
    const paused = held.flatMap(({ identity, saved }) =>
      saved ? [[identity.sandboxId, saved.run] as const] : [],
    );
    this.parts.imageUses.claims.keep(
      new Map([...runs, ...paused].map(([id, { diskImages = [] }]) => [id, diskImages])),
      listedAt,
    );
    this.parts.networks.keepFor(new Set(paused.flatMap(([, { link }]) => link ?? [])));
    this.parts.folderUses.claims.keep(new Map(runs.map(([id, { folders = [] }]) => [id, folders])), listedAt);
    this.guests.keep(new Set(running.flatMap(({ run }) => run?.runId ?? [])));
    await this.parts.networks.note(running.flatMap(networkOf), listedAt);
    return Promise.all(held.map(async (sandbox) => this.holding(sandbox)));
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    const measured = await Promise.all(sandboxIds.map(async (id) => [id, await this.measure(id)] as const));
    return new Map(measured.flatMap(([id, use]) => (use ? [[id, use]] : [])));
  }

  async commandStates(sandboxIds: readonly string[]): Promise<ReadonlyMap<string, CommandState>> {
    const states = new Map<string, CommandState>();
    for (const id of sandboxIds) {
      const record = this.running.get(id)?.record;
      if (!record) continue;
      const { command } = record;
      if (!command) states.set(id, 'running');
      else {
        const { code: exitCode, signal, outOfMemory, endedAt } = command;
        states.set(id, { exitCode, signal, outOfMemory, endedAt: instantFromMicros(endedAt) });
      }
    }
    return Promise.resolve(states);
  }

  async makeRoom(): Promise<void> {
    await this.parts.images.makeRoom();
  }

  async latestDigest(run: Run, signal: AbortSignal): Promise<string | undefined> {
    return this.parts.images.latestDigest(run, signal);
  }

  async diskUse(sandboxId: string): Promise<number | undefined> {
    const { disk, run, paused } = placesOf(this.parts.directory, sandboxId);
    const files = [disk, memoryFile(run), memoryFile(paused)];
    const found = await Promise.all(files.map(async (file) => stat(file).catch(() => undefined)));
    return found[0] && found.reduce((sum, file) => sum + (file?.blocks ?? 0) * 512, 0);
  }

  /** The file servers of its volumes hold them open for the guest. */
  async removedBytes(sandboxId: string, signal: AbortSignal): Promise<RemovedBytes | undefined> {
    const { groups } = this.parts;
    if (!groups) return undefined;
    // Files of its own disk are parts of one file of this machine, which has a name.
    const processes = async () => Promise.resolve(groups.processesOf(sandboxId));
    return { own: 0, onDisks: await removedBytes(processes, signal) };
  }

  async *logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<Iterable<LogChunk>> {
    const held = await readHeld(this.parts.directory, sandboxId);
    if (!held) return;
    const { places, run } = held;
    let wake = () => undefined as void;
    const watcher = watch(places.directory, { persistent: false }, () => wake());
    watcher.on('error', () => undefined);
    try {
      yield* followOutput(places, query, async () => {
        const changed = new Promise<void>((resolve) => (wake = resolve));
        const now = await readHeld(this.parts.directory, sandboxId);
        if (signal.aborted || !now?.isAlive || now.run?.runId !== run?.runId) return false;
        await Promise.race([changed, sleep(LOOK_MS, signal)]);
        return !signal.aborted;
      });
    } finally {
      watcher.close();
    }
  }

  async openGuest(sandboxId: string): ReturnType<Runtime['openGuest']> {
    const held = await readHeld(this.parts.directory, sandboxId);
    if (!held?.isAlive) throw new Error(`the engine runs no virtual machine of the sandbox ${sandboxId}`);
    return this.guests.open(held);
  }

  async *watch(signal: AbortSignal): AsyncIterable<void> {
    while (!signal.aborted) {
      await this.parts.changes.next(LONGEST_WAIT_MS, signal);
      if (!signal.aborted) yield;
    }
  }

  async leave(): Promise<void> {
    await this.parts.networks.leave();
  }

  async close(): Promise<void> {
    this.guests.close();
    this.parts.changes.close();
    await this.parts.networks.close();
  }

  private get removedDirectory(): string {
    return join(this.parts.directory, 'removed');
  }

  private async holding(sandbox: HeldSandbox): Promise<Holding> {
    const holding = await holdingOf(sandbox);
    const { exit } = holding;
    if (exit?.code !== KILLED || !this.parts.groups?.ranOut(holding.sandboxId)) return holding;
    return { ...holding, exit: { ...exit, outOfMemory: true } };
  }

  /**
   * The processor time is that of the monitor, which the sandbox cannot falsify. An emulated processor works while the
   * sandbox is idle, so there the sandbox reports its processor time itself. The memory of a monitor has all that the
   * sandbox has ever touched, and its own: so the sandbox reports its memory, and the machine that of both.
   */
  private async measure(sandboxId: string): Promise<Activity | undefined> {
    const held = this.running.get(sandboxId) ?? (await readHeld(this.parts.directory, sandboxId));
    const monitor = held?.record?.monitor;
    const use = monitor && useOf(monitor);
    if (!held || !use) return undefined;
    const guest = await askUse(held.places.run);
    if (this.parts.isEmulated && !guest) return undefined;
    const diskBytes = await this.diskUse(sandboxId);
    const { groups } = this.parts;
    const pids = groups?.processesOf(sandboxId) ?? [];
    const most = (held.run?.memoryMib ?? Infinity) * MIB;
    return {
      cpuMicros: guest && this.parts.isEmulated ? guest.cpuMicros : use.cpuMicros,
      hostMemoryBytes: groups?.memoryOf(sandboxId) ?? use.memoryBytes,
      ...(guest ? { memoryBytes: Math.min(guest.memoryBytes, most), processes: guest.processes } : {}),
      // File servers read and write for the sandbox too.
      ...transfersOf(pids.length > 0 ? pids : [monitor.pid]),
      ...(diskBytes === undefined ? {} : { diskBytes }),
      ...(held.run?.diskMib === undefined ? {} : { diskLimitBytes: held.run.diskMib * MIB }),
      ...this.parts.networks.traffic(sandboxId),
    };
  }
}

/** The supervisor keeps the namespace open. */
function networkOf({ identity, run, record }: HeldSandbox): RunningNetwork[] {
  const { orgId, sandboxId } = identity;
  if (run?.link === undefined || !record) return [];
  const path = `/proc/${record.supervisor.pid}/fd/${DESCRIPTOR.namespace}`;
  return [{ orgId, sandboxId, link: run.link, path, ports: run.ports }];
}

const MIB = 1024 * 1024;
const KILLED = 137;
const LONGEST_WAIT_MS = 3_600_000;
