import { NoRoomError } from '../../engine/runtime.js';

const FIRST_MS = 1_000;
const LONGEST_MS = 30_000;
/** An attempt that nobody repeats was stopped or deleted. */
const FORGOTTEN_MS = 10 * 60_000;

interface Attempt {
  words: string;
  delayMs: number;
  at: number;
}

/**
 * Delays the next attempts of starts for which the engine had no room: each one makes and removes objects of the
 * engine, and a thousand may wait. A freed place ends the delays.
 */
export class RoomRetries {
  private readonly attempts = new Map<string, Attempt>();

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Throws NoRoomError while the next attempt of the run is not due. */
  check(runId: string): void {
    const attempt = this.attempts.get(runId);
    if (attempt && this.now() < attempt.at + attempt.delayMs) throw new NoRoomError(attempt.words);
  }

  note(runId: string, words: string): NoRoomError {
    const before = this.attempts.get(runId)?.delayMs ?? FIRST_MS / 2;
    for (const [id, { at }] of this.attempts) {
      if (this.now() < at + FORGOTTEN_MS) break;
      this.attempts.delete(id);
    }
    // The order of a Map is that of insertion, so the oldest are first.
    this.attempts.delete(runId);
    this.attempts.set(runId, { words, delayMs: Math.min(before * 2, LONGEST_MS), at: this.now() });
    return new NoRoomError(words);
  }

  succeeded(runId: string): void {
    this.attempts.delete(runId);
  }

  /** Something ended, so there may be room for the one that has waited longest; the others follow it. */
  freed(): void {
    for (const attempt of this.attempts.values()) {
      attempt.delayMs = Math.min(attempt.delayMs, FIRST_MS);
    }
  }
}
