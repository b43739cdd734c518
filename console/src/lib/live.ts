import { useEffect, useRef } from 'preact/hooks';
import { signal } from '@preact/signals';
import { addressOf } from './api';
import type { EventResponse } from './api-types';
import { followStream } from './event-stream';

/** `polling`: the key may not read events, so that pages ask again by themselves. */
export const liveness = signal<'connecting' | 'live' | 'polling'>('connecting');

type Listener = (event: EventResponse | undefined) => void;
const listeners = new Set<Listener>();
const POLL_MS = 3000;
const GATHER_MS = 150;
/** An event is published up to a second after its change; a status between two events is seen by asking again. */
const SETTLE_MS = 1200;

let stop: AbortController | undefined;

/** One stream of events serves every page. */
function begin(): void {
  stop = new AbortController();
  liveness.value = 'connecting';
  void follow(stop.signal);
}

async function follow(signal: AbortSignal): Promise<void> {
  const refusal = await followStream(addressOf('/v1/events/stream', {}, {}), {
    signal,
    onOpen: () => {
      // Events between two connections are missed by a page only if it does not ask again.
      if (liveness.value === 'connecting') notify(undefined);
      liveness.value = 'live';
    },
    onLost: () => (liveness.value = 'connecting'),
    onMessage: ({ data }) => notify(JSON.parse(data) as EventResponse),
  });
  if (refusal === undefined || signal.aborted) return;
  liveness.value = 'polling';
  const timer = setInterval(() => !document.hidden && notify(undefined), POLL_MS);
  signal.addEventListener('abort', () => clearInterval(timer));
}

function notify(event: EventResponse | undefined): void {
  for (const listener of listeners) listener(event);
}

/** Calls `hear` for each event of a category, and with undefined where events may have been missed. */
export function useEvents(category: string | undefined, hear: Listener): void {
  const latest = useRef(hear);
  latest.current = hear;
  useEffect(() => {
    const listener: Listener = (event) => {
      if (event !== undefined && category !== undefined && event.category !== category) return;
      latest.current(event);
    };
    listeners.add(listener);
    if (stop === undefined) begin();
    return () => {
      listeners.delete(listener);
      if (listeners.size > 0) return;
      stop?.abort();
      stop = undefined;
    };
  }, [category]);
}

/**
 * Calls `reload` soon after a change of a category; undefined: of any. Changes within `gatherMs` are one call. A page
 * that asks for much gathers for longer.
 */
export function useLive(category: string | undefined, reload: () => void, gatherMs = GATHER_MS): void {
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    },
    [category],
  );
  useEvents(category, () => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      latest.current();
    }, gatherMs);
  });
}

/** Asks again while `isChanging`, for statuses that last shorter than an event needs, or amounts that have none. */
export function useWhileChanging(isChanging: boolean, reload: () => void, everyMs = SETTLE_MS): void {
  useEffect(() => {
    if (!isChanging) return undefined;
    const timer = setInterval(() => !document.hidden && reload(), everyMs);
    return () => clearInterval(timer);
  }, [isChanging]);
}
