import { useId, useRef, useState } from 'preact/hooks';
import type { SandboxResponse } from '../lib/api-types';
import { Empty } from '../parts/empty';
import { Field } from '../parts/field';
import { Terminal } from './terminal';

/** Each is a session of the service, and a buffer of 10,000 lines in the browser. */
const MOST_TERMINALS = 8;
const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };

interface Opened {
  number: number;
  command: string;
}

/** The terminals of a sandbox, one a tab. Their programs run on while another page of the sandbox is shown. */
export function Terminals({ sandbox, isShown }: { sandbox: SandboxResponse; isShown: boolean }) {
  const [opened, setOpened] = useState<readonly Opened[]>([]);
  const [active, setActive] = useState(0);
  const [command, setCommand] = useState('/bin/sh');
  // Arrows leave the focus on the tabs; a press on a tab moves it into the terminal.
  const [entered, setEntered] = useState({ number: 0, times: 0 });
  const field = useRef<HTMLInputElement>(null);
  const tabs = useRef<HTMLDivElement>(null);
  const prefix = useId();
  const place = opened.findIndex(({ number }) => number === active);

  const open = () => {
    const number = (opened.at(-1)?.number ?? 0) + 1;
    setOpened([...opened, { number, command }]);
    setActive(number);
  };
  const close = (number: number) => {
    const at = opened.findIndex((each) => each.number === number);
    const others = opened.filter((each) => each.number !== number);
    setOpened(others);
    if (number !== active) return;
    setActive((others[at] ?? others.at(-1))?.number ?? 0);
    field.current?.focus();
  };
  const focusActive = () => tabs.current?.querySelector<HTMLElement>('[aria-selected=true]')?.focus();
  const move = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (event.key === 'Delete') close(active);
    if (step === undefined) return;
    event.preventDefault();
    const next = (place + step + opened.length) % opened.length;
    setActive(opened[next]!.number);
    const tab = tabs.current?.children[next];
    if (tab instanceof HTMLElement) tab.focus();
  };

  return (
    <div class="terminals" hidden={!isShown}>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          open();
        }}
      >
        <Field label="Program">
          <input
            ref={field}
            value={command}
            required
            spellcheck={false}
            onInput={({ currentTarget }) => setCommand(currentTarget.value)}
          />
        </Field>
        <button
          type="submit"
          class="primary"
          disabled={sandbox.status !== 'running' || opened.length >= MOST_TERMINALS}
        >
          {opened.length === 0 ? 'Open a terminal' : 'Open a new terminal'}
        </button>
        <small>
          <kbd>Ctrl Shift C</kbd> copies the selection, <kbd>Shift Escape</kbd> leaves the terminal.
        </small>
      </form>
      {opened.length === 0 && sandbox.status !== 'running' && (
        <Empty
          title="The sandbox does not run"
          text="A terminal needs a running sandbox."
          create={{ scope: 'sandboxes:write', how: 'Start it with the button above.' }}
        />
      )}
      {opened.length > 0 && (
        <div ref={tabs} class="tabs" role="tablist" aria-label="Terminals" onKeyDown={move}>
          {opened.map(({ number, command }) => (
            <button
              key={number}
              type="button"
              role="tab"
              id={`${prefix}-tab-${number}`}
              aria-selected={number === active}
              aria-controls={`${prefix}-panel-${number}`}
              tabIndex={number === active ? 0 : -1}
              title={`${command} (Delete closes it)`}
              onClick={() => {
                setActive(number);
                setEntered({ number, times: entered.times + 1 });
              }}
            >
              {number} <code>{command}</code>
            </button>
          ))}
        </div>
      )}
      {opened.map(({ number, command }) => (
        <div
          key={number}
          role="tabpanel"
          class="terminal-panel"
          id={`${prefix}-panel-${number}`}
          aria-labelledby={`${prefix}-tab-${number}`}
          hidden={number !== active}
        >
          <Terminal
            sandboxId={sandbox.id}
            command={command}
            entered={entered.number === number ? entered.times : 0}
            leave={focusActive}
            close={() => close(number)}
          />
        </div>
      ))}
    </div>
  );
}
