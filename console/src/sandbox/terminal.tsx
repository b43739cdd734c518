import { useEffect, useRef, useState } from 'preact/hooks';
import { Problem } from '../lib/api';
import { ErrorPanel } from '../parts/error-panel';
import type { TerminalState } from './terminal-session';

interface TerminalProps {
  sandboxId: string;
  command: string;
  /** The focus moves into the terminal when this number changes, but not to 0. */
  entered: number;
  leave: () => void;
  close: () => void;
}

/** One terminal, which is opened at once. Its program ends when it is closed. */
export function Terminal({ sandboxId, command, entered, leave, close }: TerminalProps) {
  const place = useRef<HTMLDivElement>(null);
  const focus = useRef<() => void>();
  const [round, setRound] = useState(0);
  const [state, setState] = useState<TerminalState>({ kind: 'closed', text: 'connecting…' });
  const [problem, setProblem] = useState<Problem>();

  useEffect(() => {
    if (place.current === null) return undefined;
    const target = place.current;
    const controller = new AbortController();
    setProblem(undefined);
    const open = async () => {
      try {
        const { openTerminal } = await import('./terminal-session');
        if (controller.signal.aborted) return;
        focus.current = await openTerminal(target, {
          sandboxId,
          command,
          signal: controller.signal,
          changed: setState,
          leave,
        });
      } catch (error) {
        if (controller.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        setState({ kind: 'closed', text: '' });
        setProblem(error);
      }
    };
    void open();
    return () => controller.abort();
  }, [round]);
  useEffect(() => {
    if (entered > 0) focus.current?.();
  }, [entered]);

  return (
    <>
      <div class="actions terminal-state">
        <small role="status">{state.text}</small>
        <button type="button" class="quiet bar-end" onClick={close}>
          Close
        </button>
      </div>
      {problem !== undefined && <ErrorPanel problem={problem} retry={() => setRound(round + 1)} />}
      <div ref={place} class={problem === undefined ? 'terminal' : ''} />
    </>
  );
}
