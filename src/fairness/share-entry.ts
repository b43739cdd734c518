import { Linked, type LinkedList } from '../lib/linked-list.js';

/** `backlog`: the owner has too many waiting. `full`: all owners together have. `late`: the wait took too long. */
export type Refusal = 'backlog' | 'full' | 'late';

export interface Admission {
  readonly isWaiting: boolean;
  /** The time of its begin; while it waits, of its arrival. */
  readonly since: number;
  /**
   * Ends the admission, also one that still waits. `cost`: as measured; `work`: without the time. Only the first call
   * counts.
   */
  release(cost?: number, work?: number): void;
}

export type Settle = (admission: Admission, refusal?: Refusal) => void;

type State = 'waiting' | 'running' | 'expired' | 'over';

const NEXT_STATES: Record<State, readonly State[]> = {
  waiting: ['running', 'over'],
  running: ['expired', 'over'],
  expired: ['over'],
  over: [],
};

export class Entry extends Linked implements Admission {
  private current: State = 'waiting';

  constructor(
    readonly flow: Flow,
    readonly cost: number,
    readonly settle: Settle,
    public since: number,
    private readonly onRelease: (entry: Entry, cost: number, work: number) => void,
  ) {
    super();
  }

  get state(): State {
    return this.current;
  }

  become(next: State): void {
    if (!NEXT_STATES[this.current].includes(next)) {
      throw new Error(`an admission that is ${this.current} cannot become ${next}`);
    }
    this.current = next;
  }

  get isWaiting(): boolean {
    return this.current === 'waiting';
  }

  release(cost = this.cost, work = cost): void {
    this.onRelease(this, cost, work);
  }
}

/** The requests of an owner. */
export interface Flow {
  owner: string;
  /** The virtual time at which its next request begins. */
  start: number;
  running: LinkedList<Entry>;
  /** The time in progress until then is charged. */
  chargedAt: number;
  cost: number;
  /** The requests that are held for too long. They no longer count, and are charged when they end. */
  expired: number;
  queue: LinkedList<Entry>;
}

export function isIdle({ running, expired, queue }: Flow): boolean {
  return running.size + expired + queue.size === 0;
}
