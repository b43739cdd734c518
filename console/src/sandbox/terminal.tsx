import { useEffect, useRef, useState } from 'preact/hooks';
import { Problem } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import type { TerminalState } from './terminal-session';

export function Terminal({ sandbox }: { sandbox: SandboxResponse }) {
  const place = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const [command, setCommand] = useState('/bin/sh');
  const [round, setRound] = useState(0);
  const [state, setState] = useState<TerminalState>({ kind: 'closed', text: '' });
  const [problem, setProblem] = useState<Problem>();

  useEffect(() => {
    if (round === 0 || place.current === null) return undefined;
    const target = place.current;
    const controller = new AbortController();
    setProblem(undefined);
    const open = async () => {
      try {
        const { openTerminal } = await import('./terminal-session');
        await openTerminal(target, {
          sandboxId: sandbox.id,
          command,
          signal: controller.signal,
          changed: setState,
          leave: () => field.current?.focus(),
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

  return (
    <>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          setRound(round + 1);
        }}
      >
        <Field label="Program">
          <input
            ref={field}
            value={command}
            required
            onInput={({ currentTarget }) => setCommand(currentTarget.value)}
          />
        </Field>
        <button type="submit" class="primary" disabled={state.kind === 'open'}>
          {round === 0 ? 'Open a terminal' : 'Open a new terminal'}
        </button>
        <small role="status">{state.text}</small>
        <small>
          <kbd>Ctrl Shift C</kbd> copies the selection, <kbd>Shift Escape</kbd> leaves the terminal.
        </small>
      </form>
      {problem !== undefined && <ErrorPanel problem={problem} retry={() => setRound(round + 1)} />}
      <div ref={place} class={round === 0 || problem !== undefined ? '' : 'terminal'} />
    </>
  );
}
