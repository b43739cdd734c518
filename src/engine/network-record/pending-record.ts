import type { ObservedFlow } from '../definition.js';
import { SandboxMinute, type Destination, type LeftOut } from './minute.js';
import type { Refusal } from './refusal.js';

const MINUTE_MS = 60_000;
/** `minutes`: while the database is away. `most`: destinations and refusals, about 20 MB. */
export const PENDING = { minutes: 5, most: 50_000, leastOfSandbox: 10 };

/** An entry of the record that can be written now. */
export interface Due {
  sandboxId: string;
  content: { destination: Destination } | { refusal: Refusal } | { leftOut: LeftOut };
  /** It is in the store, or needs not be. */
  written(): void;
  /** It becomes a part of the counts that were left out. */
  leaveOut(): void;
}

type Minute = Map<string, SandboxMinute>;

/**
 * The record of all sandboxes that is not written yet, in memory. A stop of the process writes it; a crash loses what
 * came since the last write: a second of refusals, and a minute of destinations.
 */
export class PendingRecord {
  private current: Minute = new Map();
  private ended: Minute[] = [];
  private minute = 0;
  private size = 0;
  /** Entries that were dropped because the database was away for long. */
  lost = 0;

  addFlow(flow: ObservedFlow): void {
    const of = this.of(flow.sandbox);
    this.counted(of, () => of.addFlow(flow, this.isFullFor(of)));
  }

  addRefusal(sandboxId: string, refusal: Refusal): void {
    const of = this.of(sandboxId);
    this.counted(of, () => of.addRefusal(refusal, this.isFullFor(of)));
  }

  /** `nowMs`: since 1970. To be called often. */
  turn(nowMs: number): void {
    const minute = Math.floor(nowMs / MINUTE_MS);
    if (minute === this.minute) return;
    this.minute = minute;
    this.endMinute();
  }

  /** Everything so far can be written. */
  endMinute(): void {
    if (this.current.size > 0) this.ended.push(this.current);
    this.current = new Map();
    while (this.ended.length > PENDING.minutes) {
      for (const of of this.ended.shift()!.values()) {
        this.size -= of.size;
        this.lost += of.size;
      }
    }
  }

  /** The oldest first. Destinations and left out counts come at the end of their minute. */
  due(): Due[] {
    return [
      ...this.ended.flatMap((minute) => [...minute].flatMap(([id, of]) => this.dueOf(id, of, true))),
      ...[...this.current].flatMap(([id, of]) => this.dueOf(id, of, false)),
    ];
  }

  /** The counts of minutes that are over. Everything else of these minutes must be written. */
  dueLeftOut(): Due[] {
    const due = this.ended.flatMap((minute) =>
      [...minute].flatMap(([sandboxId, of]) => {
        if (of.size > 0) return [];
        const forget = () => void minute.delete(sandboxId);
        if (!of.hasLeftOut) forget();
        return of.hasLeftOut
          ? [{ sandboxId, content: { leftOut: of.leftOut }, written: forget, leaveOut: forget }]
          : [];
      }),
    );
    this.ended = this.ended.filter((minute) => minute.size > 0);
    return due;
  }

  private dueOf(sandboxId: string, of: SandboxMinute, hasEnded: boolean): Due[] {
    const due: Due[] = [];
    for (const [key, pending] of of.refusals) {
      const refusal = pending.due(hasEnded);
      const written = () => {
        if (refusal) pending.written(refusal);
        if (hasEnded) this.counted(of, () => of.refusals.delete(key));
      };
      if (!refusal) {
        if (hasEnded) written();
        continue;
      }
      const leaveOut = () => {
        written();
        of.leftOut.refusals += refusal.count;
      };
      due.push({ sandboxId, content: { refusal }, written, leaveOut });
    }
    if (!hasEnded) return due;
    for (const [key, destination] of of.destinations) {
      const written = () => this.counted(of, () => of.destinations.delete(key));
      const leaveOut = () => {
        written();
        of.leaveOut(destination);
      };
      due.push({ sandboxId, content: { destination }, written, leaveOut });
    }
    return due;
  }

  /** One sandbox cannot take the room of the others. */
  private isFullFor(of: SandboxMinute): boolean {
    return this.size >= PENDING.most && of.size >= PENDING.leastOfSandbox;
  }

  private counted(of: SandboxMinute, change: () => unknown): void {
    const before = of.size;
    change();
    this.size += of.size - before;
  }

  private of(sandboxId: string): SandboxMinute {
    const known = this.current.get(sandboxId);
    if (known) return known;
    const made = new SandboxMinute();
    this.current.set(sandboxId, made);
    return made;
  }
}
