import { useEffect, useRef, useState } from 'preact/hooks';
import { Problem } from './api';
import { connection, retryWhenBack } from './connection';

/** No sign of waiting earlier than this. */
const QUIET_MS = 200;

export interface Resource<T> {
  data: T | undefined;
  problem: Problem | undefined;
  /** The answer takes longer than 200 ms and there is nothing to show yet. */
  isSlow: boolean;
  reload: () => void;
}

/** Loads at first, when `key` changes, and on `reload`. A reload keeps what is shown until its answer is there. */
export function useResource<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Resource<T> {
  const [state, setState] = useState<{ key: string; data?: T; problem?: Problem }>({ key });
  const [isSlow, setSlow] = useState(false);
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const reload = () => setRound((value) => value + 1);

  useEffect(() => {
    const controller = new AbortController();
    setSlow(false);
    const timer = setTimeout(() => setSlow(true), QUIET_MS);
    const read = async () => {
      try {
        const data = await latest.current(controller.signal);
        if (controller.signal.aborted) return;
        connection.value = 'up';
        setState({ key, data });
      } catch (error) {
        if (controller.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        if (error.status === 0) retryWhenBack(controller.signal, reload);
        setState((shown) => ({ ...(shown.key === key ? shown : {}), key, problem: error }));
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

  const current = state.key === key ? state : { key };
  return {
    data: current.data,
    problem: current.problem,
    isSlow: isSlow && current.data === undefined && current.problem === undefined,
    reload,
  };
}
