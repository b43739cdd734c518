import { setMaxListeners } from 'node:events';
import type { Context, ServiceContext } from '../../context.js';
import { Slots, type SlotLimits } from '../../fairness/slots.js';
import { ApiError } from '../../http/errors.js';
import { addMillis } from '../../lib/instant.js';
import { sleep } from '../../lib/sleep.js';
import { wakeSandbox, WakeRefusedError, type WakeStatus } from '../../sandboxes/lifecycle/wake.js';
import { extendWanted } from '../../runs/queries.js';
import { getWakeState } from './queries.js';
import { asleep, endedReason } from './refusals.js';

export interface Sleeper {
  orgId: string;
  sandboxId: string;
  previewId: string;
}

export interface WaitOptions {
  /** On the clock of `performance.now`. */
  until: number;
  signal: AbortSignal;
  /** A page that is open already sent the request. Default: false. */
  isBackground?: boolean;
}

export const WAKE_LIMITS = {
  /** A parked request has a connection, and some KiB of memory. */
  total: 10_000,
  each: 5_000,
  ofSandbox: 1_000,
};
/** A run without a place ends so long after the latest request that waited for it. */
const WANTED_MS = 60_000;
/** A page that waits asks again at once, and programs after a second. They join the attempt that they began. */
const LINGER_MS = 5_000;
/** Requests within this time get the refusal of an earlier one: each start locks the row of the sandbox. */
const REFUSED_MS = 1_000;
const MOST_REFUSALS = 10_000;
/** A fallback: notifications wake all waiters, and so does a new notification connection. */
const LOOK_EVERY_MS = 15_000;
/** The processor time of a start, which is charged to the organization. */
const START_MS = 10;

/** `already`: the sandbox ran before the attempt. `left`: nobody waits any more. */
type Outcome = 'running' | 'already' | 'left';

/** A start that requests of this process wait for. */
interface Attempt {
  /** Resolves when the start is admitted. */
  admitted: Promise<unknown>;
  /** Resolves when the sandbox runs, and also when nobody waits for it any more. */
  running: Promise<Outcome>;
  waiting: number;
  /** On the clock of `performance.now`. */
  wantedUntil: number;
  /** Ends the wait for the start, not the start. */
  left: AbortController;
}

/** Starts sandboxes for requests to their previews. All requests that wait for a sandbox share one start. */
export class Waker {
  private readonly attempts = new Map<string, Attempt>();
  private readonly refusals = new Map<string, { error: unknown; until: number }>();
  private readonly parked: Slots;
  private readonly parkedOfSandbox: Slots;

  constructor(
    private readonly ctx: ServiceContext,
    limits: SlotLimits & { ofSandbox: number } = WAKE_LIMITS,
  ) {
    this.parked = new Slots(limits);
    this.parkedOfSandbox = new Slots({ total: limits.total, each: limits.ofSandbox });
  }

  /** Begins the start, and resolves when it is admitted. Throws an ApiError. */
  async begin(sleeper: Sleeper, isBackground = false): Promise<void> {
    await this.join(sleeper, isBackground, performance.now(), (attempt) => attempt.admitted);
  }

  /** Resolves when the sandbox runs. Throws an ApiError, also when the time is up, or the reason of the signal. */
  async wait(sleeper: Sleeper, { until, signal, isBackground = false }: WaitOptions): Promise<void> {
    const { stopping } = this.ctx;
    await this.join(sleeper, isBackground, until, (attempt) =>
      inTime(attempt.running, until, AbortSignal.any([signal, stopping])),
    ).catch((error: unknown) => {
      throw stopping.aborted && !(error instanceof ApiError) ? serviceStops() : error;
    });
  }

  private async join(
    sleeper: Sleeper,
    isBackground: boolean,
    until: number,
    work: (attempt: Attempt) => Promise<unknown>,
  ): Promise<void> {
    // A page that is open already may be refused while others are not.
    const key = `${sleeper.sandboxId} ${isBackground}`;
    const refusal = this.refusals.get(key);
    if (refusal && refusal.until > performance.now()) throw refusal.error;
    const release = this.park(sleeper);
    try {
      const attempt = this.attempts.get(key) ?? this.start(key, sleeper, isBackground);
      this.extend(attempt, sleeper, until);
      attempt.waiting += 1;
      try {
        await work(attempt);
      } finally {
        attempt.waiting -= 1;
        if (attempt.waiting === 0) this.endSoon(attempt);
      }
    } finally {
      release();
    }
  }

  private park({ orgId, sandboxId }: Sleeper): () => void {
    const leaveSandbox = this.parkedOfSandbox.acquire(sandboxId);
    const leave = leaveSandbox && this.parked.acquire(orgId);
    if (!leave) {
      leaveSandbox?.();
      throw asleep('too_many_waiting');
    }
    return () => {
      leave();
      leaveSandbox();
    };
  }

  private start(key: string, sleeper: Sleeper, isBackground: boolean): Attempt {
    const left = new AbortController();
    const began = performance.now();
    const admitted = this.admit(sleeper, isBackground);
    const running = admitted.then((status) =>
      status === 'running' ? 'already' : this.untilRunning(sleeper, left.signal),
    );
    const attempt: Attempt = {
      admitted,
      running,
      left,
      waiting: 0,
      wantedUntil: performance.now() + WANTED_MS,
    };
    this.attempts.set(key, attempt);
    admitted.catch((error: unknown) => this.refuse(key, error));
    const forget = () => {
      if (this.attempts.get(key) === attempt) this.attempts.delete(key);
    };
    // Later requests begin again when nobody is left here.
    left.signal.addEventListener('abort', forget, { once: true });
    const over = (outcome: string) => {
      forget();
      if (outcome !== 'already') {
        this.ctx.meters.previewWoken(outcome, (performance.now() - began) / 1_000);
      }
    };
    running.then(over, (error: unknown) => over(reasonOf(error)));
    return attempt;
  }

  private endSoon(attempt: Attempt): void {
    const end = () => {
      if (attempt.waiting === 0) attempt.left.abort();
    };
    if (this.ctx.stopping.aborted) end();
    else setTimeout(end, LINGER_MS).unref();
  }

  private async admit(sleeper: Sleeper, isBackground: boolean): Promise<WakeStatus> {
    const { orgId } = sleeper;
    const ctx = this.contextOf(orgId);
    await this.ctx.pace.rest(orgId, START_MS, this.ctx.stopping);
    const wantedUntil = addMillis(this.ctx.now(), WANTED_MS);
    return wakeSandbox(ctx, { ...sleeper, isBackground, wantedUntil }).catch((error: unknown) => {
      throw refusalOf(error);
    });
  }

  private async untilRunning({ orgId, sandboxId }: Sleeper, left: AbortSignal): Promise<Outcome> {
    const { stopping } = this.ctx;
    const { reads } = this.contextOf(orgId);
    let changed = new AbortController();
    const unsubscribe = this.ctx.changes.subscribe(sandboxId, () => changed.abort());
    try {
      while (!left.aborted && !stopping.aborted) {
        changed = new AbortController();
        const state = await getWakeState(reads, orgId, sandboxId);
        if (!state) throw new ApiError('sandbox_not_found');
        const { status, will_start: willStart, stop_reason: reason } = state;
        if (status === 'running') return 'running';
        if (status !== 'starting' && !willStart) {
          throw asleep(status === 'stopping' ? 'stopped' : endedReason(reason));
        }
        await sleep(LOOK_EVERY_MS, AbortSignal.any([changed.signal, left, stopping]));
      }
      return 'left';
    } finally {
      unsubscribe();
    }
  }

  /** A start without a place must not end while a request that joined it later waits, or asks again. */
  private extend(attempt: Attempt, { orgId, sandboxId }: Sleeper, until: number): void {
    if (until <= attempt.wantedUntil - WANTED_MS / 2) return;
    attempt.wantedUntil = until + WANTED_MS;
    const wanted = addMillis(this.ctx.now(), attempt.wantedUntil - performance.now());
    attempt.admitted
      .then(() => extendWanted(this.contextOf(orgId).pool, orgId, sandboxId, wanted))
      .catch((error: unknown) => this.ctx.log.debug({ err: error }, 'a start was not extended'));
  }

  private refuse(key: string, error: unknown): void {
    if (this.refusals.size >= MOST_REFUSALS) this.refusals.clear();
    this.refusals.set(key, { error, until: performance.now() + REFUSED_MS });
  }

  private contextOf(orgId: string): Context {
    return { ...this.ctx, ...this.ctx.requests.of(orgId) };
  }
}

function serviceStops(): ApiError {
  return new ApiError('not_ready', 'the service stops: repeat the request', null, {
    headers: { 'retry-after': '1' },
  });
}

/** The reasons of a start name limits, images and files of the organization, which its visitors need not know. */
function refusalOf(error: unknown): unknown {
  if (error instanceof WakeRefusedError) return asleep(error.refusal, error.retryAfterMs);
  if (!(error instanceof ApiError)) return error;
  switch (error.kind) {
    case 'sandbox_not_found':
    case 'not_ready':
      return error;
    case 'invalid_state_transition':
      return asleep('not_allowed');
    default:
      return asleep('quota');
  }
}

/** For metrics: a closed list of words. */
function reasonOf(error: unknown): string {
  const isRefusal = error instanceof ApiError && error.kind === 'sandbox_not_running';
  return isRefusal ? String(error.details?.['reason']) : 'failed';
}

/** Settles with `promise`, or rejects when the time is up or with the reason of the signal. */
async function inTime(promise: Promise<unknown>, until: number, signal: AbortSignal): Promise<void> {
  setMaxListeners(0, signal);
  signal.throwIfAborted();
  let timer: NodeJS.Timeout | undefined;
  let stop!: () => void;
  const cut = new Promise<never>((_resolve, reject) => {
    stop = () => reject(signal.reason as Error);
    signal.addEventListener('abort', stop, { once: true });
    timer = setTimeout(() => reject(asleep('starting')), Math.max(0, until - performance.now()));
  });
  try {
    await Promise.race([promise, cut]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
  }
}
