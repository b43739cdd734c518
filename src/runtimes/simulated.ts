import { EventEmitter, on } from 'node:events';
import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { now, type Instant } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import { CAPABILITIES, StartRefusedError, type Holding, type Run, type Runtime } from './runtime.js';

export interface SimulatedOptions {
  /** How long a start and a stop take, in milliseconds. */
  startMs?: number;
  stopMs?: number;
  /** Makes a start fail: the reason, or undefined to let it succeed. */
  failStart?: (run: Run) => string | undefined;
}

/**
 * Runs nothing, but keeps real time: what it holds starts, stops and survives a crash of the control plane like a real
 * sandbox would. For a first look, load tests and fault tests.
 *
 * Its record is a journal, one holding (or its removal) a line, so that it knows after a `kill -9` what "ran on".
 */
export class SimulatedRuntime implements Runtime {
  readonly name = 'simulated';
  readonly description = 'simulated: NOTHING RUNS and nothing is isolated; only the records are real';
  readonly capabilities = new Set(CAPABILITIES);
  readonly bounds = { vcpus: 1024, memoryMib: 16 * 1024 * 1024, smallestMemoryMib: 1 };

  private readonly holdings = new Map<string, Holding>();
  private readonly changes = new EventEmitter();
  private readonly journal: number;

  constructor(
    directory: string,
    private readonly options: SimulatedOptions = {},
  ) {
    const path = join(directory, 'simulated.ndjson');
    if (existsSync(path)) this.replay(readFileSync(path, 'utf8'));
    // Start over from what is still held, or the journal would grow for ever.
    writeFileSync(`${path}.new`, [...this.holdings.values()].map(toLine).join(''), { mode: 0o600 });
    renameSync(`${path}.new`, path);
    this.journal = openSync(path, 'a');
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    const held = this.holdings.get(run.sandboxId);
    if (held?.runId === run.runId && held.state !== 'prepared') return;
    const { spec: _, ...ids } = run;
    this.put({ ...ids, state: 'prepared', startedAt: null, finishedAt: null, exit: null });
    await sleep(this.options.startMs ?? 0, signal);
    if (signal.aborted) return;
    const failure = this.options.failStart?.(run);
    if (failure !== undefined) throw new StartRefusedError(failure);
    this.put({ ...ids, state: 'running', startedAt: now(), finishedAt: null, exit: null });
  }

  async stop(sandboxId: string): Promise<void> {
    await sleep(this.options.stopMs ?? 0);
    this.exit(sandboxId, 0);
  }

  async destroy(sandboxId: string): Promise<void> {
    if (!this.holdings.delete(sandboxId)) return;
    this.write({ sandboxId, removed: true });
    return Promise.resolve();
  }

  async list(): Promise<Holding[]> {
    return Promise.resolve([...this.holdings.values()].map((holding) => ({ ...holding })));
  }

  async *watch(signal: AbortSignal): AsyncIterable<void> {
    try {
      for await (const _ of on(this.changes, 'change', { signal })) yield;
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async close(): Promise<void> {
    fsyncSync(this.journal);
    closeSync(this.journal);
    return Promise.resolve();
  }

  /** The main process ends by itself: what a real sandbox does when its command is done or crashes. */
  exit(sandboxId: string, code: number, at: Instant = now()): void {
    const held = this.holdings.get(sandboxId);
    if (held?.state !== 'running') return;
    this.put({ ...held, state: 'exited', finishedAt: at, exit: { code, outOfMemory: false } });
  }

  private put(holding: Holding): void {
    this.holdings.set(holding.sandboxId, holding);
    this.write(holding);
    this.changes.emit('change');
  }

  private write(entry: Holding | { sandboxId: string; removed: true }): void {
    writeSync(this.journal, toLine(entry));
  }

  private replay(text: string): void {
    for (const line of text.split('\n')) {
      // A line that a kill cut short was never acted upon.
      const entry = parseLine(line);
      if (!entry) continue;
      if ('removed' in entry) this.holdings.delete(entry.sandboxId);
      else this.holdings.set(entry.sandboxId, entry);
    }
  }
}

function toLine(entry: object): string {
  return `${JSON.stringify(entry)}\n`;
}

function parseLine(line: string): Holding | { sandboxId: string; removed: true } | undefined {
  try {
    return JSON.parse(line) as Holding;
  } catch {
    return undefined;
  }
}
