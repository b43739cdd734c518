import { useState } from 'preact/hooks';
import { Problem } from './api';

interface Change {
  /** Runs the change, and keeps its refusal. Returns its answer, or undefined after a refusal. */
  send: <T>(run: () => Promise<T>) => Promise<T | undefined>;
  problem: Problem | undefined;
  isBusy: boolean;
}

/** A change that a form sends: while it is under way, and its refusal. */
export function useChange(): Change {
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const send = async <T>(run: () => Promise<T>): Promise<T | undefined> => {
    setBusy(true);
    setProblem(undefined);
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
      return undefined;
    } finally {
      setBusy(false);
    }
  };
  return { send, problem, isBusy };
}
