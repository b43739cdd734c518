import { hash } from 'node:crypto';
import type { Context } from '../context.js';
import { announceCancelledCall } from '../db/changes.js';

/** The id of a request of JSON-RPC. */
export type RequestId = string | number;

/**
 * The calls in progress, so that a cancellation finds its call. It is a request of its own, which any process of the
 * service may get: a notification of the database takes it to the process with the call.
 */
export class Calls {
  private readonly open = new Map<string, Set<AbortController>>();
  private readonly unsubscribe: () => void;

  constructor(changes: Context['changes']) {
    this.unsubscribe = changes.subscribe(
      undefined,
      (call) => {
        if (call !== undefined) this.end(call);
      },
      'call',
    );
  }

  /** Returns a signal that aborts when the call is cancelled, and the function that forgets the call. */
  begin(session: string, id: RequestId): { cancelled: AbortSignal; over: () => void } {
    const call = nameOf(session, id);
    const controller = new AbortController();
    // A client may use an id twice. A cancellation then means every call with it.
    const known = this.open.get(call) ?? new Set();
    this.open.set(call, known.add(controller));
    return {
      cancelled: controller.signal,
      over: () => {
        known.delete(controller);
        if (known.size === 0 && this.open.get(call) === known) this.open.delete(call);
      },
    };
  }

  /** Cancels a call of the session, whichever process has it. A call that has ended stays as it is. */
  async cancel({ pool }: Pick<Context, 'pool'>, session: string, id: RequestId): Promise<void> {
    const call = nameOf(session, id);
    if (!this.end(call)) await announceCancelledCall(pool, call);
  }

  close(): void {
    this.unsubscribe();
  }

  private end(call: string): boolean {
    const known = this.open.get(call);
    for (const controller of known ?? []) controller.abort();
    return known !== undefined;
  }
}

/** Sessions are secret and bound to their keys: nobody else can name the call. */
function nameOf(session: string, id: RequestId): string {
  return hash('sha256', JSON.stringify([session, id]), 'hex');
}
