import { statusOf } from './errors.js';

export interface Unanswered {
  /** Such as `start`. */
  call: string;
  ms: number;
}

/**
 * The sandboxes whose container the engine does not answer for, and since when. The engine has a lock for each
 * container: a call that hangs holds up the later ones of its container, and no other.
 */
export class UnansweredCalls {
  private readonly first = new Map<string, { call: string; since: number; open: number }>();

  constructor(private readonly now: () => number = () => performance.now()) {}

  async track<Answer>(sandboxId: string, call: string, work: Promise<Answer>): Promise<Answer> {
    const entry = this.first.get(sandboxId) ?? { call, since: this.now(), open: 0 };
    this.first.set(sandboxId, entry);
    entry.open += 1;
    try {
      const answer = await work;
      this.first.delete(sandboxId);
      return answer;
    } catch (error) {
      // A refusal is an answer. A time-out is none: the engine may still be at it.
      if (!isTimeout(error)) this.first.delete(sandboxId);
      throw error;
    } finally {
      entry.open -= 1;
    }
  }

  /** Forgets the sandboxes whose container the engine does not have, unless a call for one is under way. */
  keepOnly(sandboxIds: ReadonlySet<string>): void {
    for (const [id, { open }] of this.first) if (open === 0 && !sandboxIds.has(id)) this.first.delete(id);
  }

  all(): Map<string, Unanswered> {
    const now = this.now();
    return new Map([...this.first].map(([id, { call, since }]) => [id, { call, ms: now - since }]));
  }
}

/** The client closes the connection of a request that takes too long. */
function isTimeout(error: unknown): boolean {
  return statusOf(error) === undefined && (error as { code?: string }).code === 'ECONNRESET';
}
