import { now } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Holding, Run } from '../../../src/runtimes/runtime.js';
import { SimulatedRuntime } from '../../../src/runtimes/simulated/runtime.js';
import type { Dice } from './seeded-random.js';

/** What goes wrong in an engine, and how often. */
export interface Chaos {
  /** The longest that a start and a stop take, in milliseconds. */
  startMs: number;
  stopMs: number;
  /** The longest that a look at all of it takes: what is told is of the beginning. */
  listMs: number;
  /** The share of starts that are refused. */
  refuses: number;
  /** The share of runs that end by themselves, and the longest that takes, in milliseconds. */
  ends: number;
  endsWithinMs: number;
  /** The share of runs that end while nobody looks: found ended by whoever takes over. */
  endsUnseen: number;
  /** Changes are not told. */
  silent: boolean;
  /** The engine restarts after so many milliseconds, which ends everything in it. */
  restartsAfterMs: number | null;
}

const KILLED = 137;

/** A simulated engine with the troubles of a real one. Its record stays what it is: exact. */
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
