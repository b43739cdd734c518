import { now } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Holding, Run } from '../../../src/engine/runtime.js';
import { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Dice } from './seeded-random.js';

/** The faults of an engine, and their frequencies. */
export interface Chaos {
  /** The longest time of a start and of a stop, in milliseconds. */
  startMs: number;
  stopMs: number;
  /** The longest time of a listing, which shows the state at its start. */
  listMs: number;
  /** The share of starts that are refused. */
  refuses: number;
  /** The share of runs that end by themselves, and the longest time until then, in milliseconds. */
  ends: number;
  endsWithinMs: number;
  /** The share of runs that end while no process is attached. The next process to take over finds them ended. */
  endsUnseen: number;
  /** Changes are not announced. */
  silent: boolean;
  /** The engine restarts after this many milliseconds, which ends all runs. */
  restartsAfterMs: number | null;
}

const KILLED = 137;

/** A simulated engine with the faults of a real one. Its record stays exact. */
export class ChaoticRuntime extends SimulatedRuntime {
  constructor(
    directory: string,
    private readonly chaos: Chaos,
    private readonly dice: Dice,
  ) {
    super(directory, {
      keepJournal: true,
      get startMs() {
        return dice.between(0, chaos.startMs);
      },
      get stopMs() {
        return dice.between(0, chaos.stopMs);
      },
      failStart: () => (dice.chance(chaos.refuses) ? 'the engine refuses' : undefined),
    });
  }

  override async takeOver(term: { readonly valid: boolean }): Promise<void> {
    await super.takeOver(term);
    for (const { sandboxId, state } of await super.list()) {
      if (state === 'running' && this.dice.chance(this.chaos.endsUnseen)) this.endItself(sandboxId);
    }
    const { restartsAfterMs } = this.chaos;
    if (restartsAfterMs !== null) setTimeout(() => void this.restart(), restartsAfterMs).unref();
  }

  override async start(run: Run, signal: AbortSignal): Promise<void> {
    await super.start(run, signal);
    if (!this.dice.chance(this.chaos.ends)) return;
    setTimeout(() => this.endItself(run.sandboxId), this.dice.between(0, this.chaos.endsWithinMs)).unref();
  }

  override async list(): Promise<Holding[]> {
    const held = await super.list();
    await sleep(this.dice.between(0, this.chaos.listMs));
    return held;
  }

  override async *watch(signal: AbortSignal): AsyncIterable<void> {
    if (!this.chaos.silent) yield* super.watch(signal);
    while (!signal.aborted) await sleep(1_000, signal);
  }

  private endItself(sandboxId: string): void {
    this.exit(sandboxId, this.dice.oneOf([0, 0, 1, KILLED]));
  }

  private async restart(): Promise<void> {
    const at = now();
    for (const { sandboxId } of await super.list()) this.exit(sandboxId, KILLED, at);
  }
}
