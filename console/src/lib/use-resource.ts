import { useEffect, useRef, useState } from 'preact/hooks';
import { Problem } from './api';
import { connection, retryWhenBack } from './connection';

/** No sign of waiting earlier than this. */
const QUIET_MS = 200;

export interface Resource<T> {
  data: T | undefined;
  problem: Problem | undefined;
  /** There is something to load. */
  isAsked: boolean;
  /** The answer takes longer than 200 ms and there is nothing to show yet. */
  isSlow: boolean;
  /** The data is the answer to the previous key, until that to the present one is there. */
  isStale: boolean;
  reload: () => void;
}

/** Neither data nor a problem came yet. */
export const isUnanswered = ({ isAsked, data, problem }: Resource<unknown>) =>
  isAsked && data === undefined && problem === undefined;

/**
 * Loads at first, when `key` changes, and on `reload`. A reload keeps what is shown until its answer is there. With
 * `keeps`, a change of the key does too: the page does not jump, and the focus stays. Without `load` nothing is loaded.
 */
export function useResource<T>(
  key: string,
  load: ((signal: AbortSignal) => Promise<T>) | undefined,
  { keeps = false } = {},
): Resource<T> {
  const [state, setState] = useState<{ key: string; data?: T; problem?: Problem }>({ key });
  const [isSlow, setSlow] = useState(false);
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const reload = () => setRound((value) => value + 1);

  useEffect(() => {
    const load = latest.current;
    if (load === undefined) return undefined;
    const controller = new AbortController();
    setSlow(false);
    const timer = setTimeout(() => setSlow(true), QUIET_MS);
    const read = async () => {
      try {
        const data = await load(controller.signal);
        if (controller.signal.aborted) return;
        connection.value = 'up';
        setState({ key, data });
      } catch (error) {
        if (controller.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        if (error.status === 0) retryWhenBack(controller.signal, reload);
        // Without an answer the page shows its last state.
        const isKept = (shown: { key: string }) => shown.key === key || (keeps && error.status === 0);
        setState((shown) => ({ ...(isKept(shown) ? shown : {}), key, problem: error }));
      } finally {
        clearTimeout(timer);
      }
    };
    void read();
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key, round]);

  const isStale = state.key !== key && keeps && state.data !== undefined;
  const current: typeof state =
    state.key === key ? state : { key, ...(isStale && state.data !== undefined ? { data: state.data } : {}) };
  return {
    isAsked: load !== undefined,
    data: current.data,
    problem: current.problem,
    isStale,
    isSlow: isSlow && current.data === undefined && current.problem === undefined,
    reload,
  };
}
