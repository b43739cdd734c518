import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import type { Scope } from '../../../src/access/scopes';
import { density, timeZone, theme } from '../lib/preferences';
import { may } from '../lib/session';
import { useResource } from '../lib/use-resource';
import { listedPages } from '../pages';
import { Dialog } from '../parts/dialog';
import { pageWithMatches } from '../sandboxes/page-with-matches';

interface Command {
  title: string;
  run: () => void;
}

const FOUND_SANDBOXES = 6;

/** Commands that a session without the scope does not get. */
const SCOPED: readonly (readonly [title: string, path: string, scope: Scope])[] = [
  ['Create a sandbox', '/sandboxes?create=form', 'sandboxes:write'],
  ['Create a template', '/templates?create=commands', 'sandboxes:write'],
  ['Create a volume', '/volumes?create=form', 'volumes:write'],
  ['Create a budget', '/budgets?create=form', 'org:admin'],
  ['Create a key', '/keys?create=form', 'keys:write'],
  ['Create a webhook', '/webhooks?create=form', 'org:admin'],
  ['Verify the audit trail', '/audit?verify=open', 'events:read'],
];

/** Pages, sandboxes by a part of their name, and the switches, by keyboard. */
export function CommandPalette({ close }: { close: () => void }) {
  const [, go] = useLocation();
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const found = useResource(`palette:${text}`, async (signal) =>
    text === '' || !may('sandboxes:read')
      ? []
      : (await pageWithMatches({ name_contains: text, limit: FOUND_SANDBOXES }, signal)).data,
  );
  const own: Command[] = [
    ...listedPages().map(({ title, path }) => ({ title: `Open ${title}`, run: () => go(path) })),
    ...SCOPED.filter(([, , scope]) => may(scope)).map(([title, path]) => ({ title, run: () => go(path) })),
    { title: 'Use light colours', run: () => (theme.value = 'light') },
    { title: 'Use dark colours', run: () => (theme.value = 'dark') },
    { title: 'Show times in UTC', run: () => (timeZone.value = 'utc') },
    { title: 'Show times in local time', run: () => (timeZone.value = 'local') },
    { title: 'Show compact rows', run: () => (density.value = 'compact') },
    { title: 'Show comfortable rows', run: () => (density.value = 'comfortable') },
  ];
  const commands: Command[] = [
    ...own.filter(({ title }) => title.toLowerCase().includes(text.toLowerCase())),
    ...(found.data ?? []).map(({ id, name, status }) => ({
      title: `Sandbox ${name} (${status})`,
      run: () => go(`/sandboxes/${id}`),
    })),
  ];
  const run = (command: Command | undefined) => {
    if (command === undefined) return;
    close();
    command.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0 && commands.length > 0) {
      event.preventDefault();
      setChosen((chosen + step + commands.length) % commands.length);
    }
    if (event.key === 'Enter') run(commands[chosen]);
  };
  return (
    <Dialog title="Commands" close={close}>
      <input
        type="search"
        autofocus
        role="combobox"
        aria-label="A command, or a part of a sandbox's name"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={commands.length > 0 ? `command-${chosen}` : undefined}
        placeholder="A command, or a part of a sandbox's name"
        value={text}
        onInput={({ currentTarget }) => {
          setText(currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="commands" class="commands" role="listbox" aria-label="Commands">
        {commands.map((command, index) => (
          <li
            key={command.title}
            id={`command-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => run(command)}
          >
            {command.title}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
