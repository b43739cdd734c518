import { spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter, on, once } from 'node:events';
import { defineEngine } from '../../src/engine/definition.js';
import type { Holding, LogChunk, Run, Runtime } from '../../src/engine/runtime.js';
import { ApiError } from '../../src/http/errors.js';
import { now } from '../../src/lib/instant.js';
import { newId } from '../../src/lib/uuid.js';
import { text } from '../../src/options/types.js';

/** The smallest engine: a sandbox is a process of this machine, and nothing is isolated. */
class TinyRuntime implements Runtime {
  readonly name = 'tiny';
  readonly engineId = newId();
  readonly machine = 'here';
  readonly capacity = { vcpus: 4, memoryMib: 1_024, diskMib: null };
  readonly capabilities = new Set(['network', 'network_off'] as const);
  readonly bounds = { vcpus: 4, memoryMib: 1_024, smallestMemoryMib: 1, sharedCpuMillis: 250 };
  private readonly held = new Map<string, { holding: Holding; process: ChildProcess; output: string }>();
  private readonly changes = new EventEmitter();

  constructor(readonly description: string) {}

  async takeOver(): Promise<void> {}

  async start({ orgId, sandboxId, runId, spec }: Run): Promise<void> {
    if (this.held.get(sandboxId)?.holding.runId === runId) return;
    const [program = 'true', ...args] = spec.cmd ?? [];
    const process = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] });
    const ids = { orgId, sandboxId, runId };
    const startedAt = now();
    const held = {
      process,
      output: '',
      holding: { ...ids, startedAt, state: 'running', finishedAt: null, exit: null } as Holding,
    };
    this.held.set(sandboxId, held);
    process.stdout.on('data', (data) => (held.output += String(data)));
    process.once('close', (code) => {
      const exit = { code: code ?? 137, outOfMemory: false };
      held.holding = { ...held.holding, state: 'exited', finishedAt: now(), exit };
      this.changes.emit('change');
    });
    await once(process, 'spawn');
    this.changes.emit('change');
  }

  async stop(sandboxId: string): Promise<void> {
    const held = this.held.get(sandboxId);
    if (held?.holding.state !== 'running') return;
    const closed = once(held.process, 'close');
    held.process.kill('SIGKILL');
    await closed;
  }

  async destroy(sandboxId: string): Promise<void> {
    await this.stop(sandboxId);
    this.held.delete(sandboxId);
  }

  async list(): Promise<Holding[]> {
    return Promise.resolve([...this.held.values()].map(({ holding }) => holding));
  }

  async *logs(sandboxId: string): AsyncIterable<Iterable<LogChunk>> {
    const { output = '' } = this.held.get(sandboxId) ?? {};
    const position = { nanos: 0n, bytes: output.length };
    yield await Promise.resolve([{ source: 'stdout', ts: now(), text: output, position } as LogChunk]);
  }

  async *watch(signal: AbortSignal): AsyncIterable<void> {
    try {
      for await (const _ of on(this.changes, 'change', { signal })) yield;
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async activity(): ReturnType<Runtime['activity']> {
    return Promise.resolve(new Map());
  }
  async diskUse(): Promise<undefined> {}
  async makeRoom(): Promise<void> {}
  openGuest(): Promise<never> {
    return Promise.reject(new ApiError('not_supported', 'the tiny runtime has no way in'));
  }
  async close(): Promise<void> {
    for (const id of this.held.keys()) await this.destroy(id);
  }
}

export const tiny = defineEngine({
  name: 'tiny',
  label: 'tiny engine',
  options: {
    tinyGreeting: { type: text('<text>', 'a text'), description: 'its description', default: 'hello' },
  },
  address: [],
  hasVolumeDirectories: true,
  remedy: ': it always answers',
  connect: async ({ tinyGreeting }) => Promise.resolve(new TinyRuntime(tinyGreeting)),
  explain: String,
});
