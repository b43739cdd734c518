import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { call } from '../lib/api';
import { density, timeZone, theme } from '../lib/preferences';
import { useResource } from '../lib/use-resource';
import { LISTED } from '../pages';
import { Dialog } from '../parts/dialog';

interface Command {
  title: string;
  run: () => void;
}

const FOUND_SANDBOXES = 6;

/** Pages, sandboxes by the beginning of their name, and the switches, by keyboard. */
export function CommandPalette({ close }: { close: () => void }) {
  const [, go] = useLocation();
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const found = useResource(`palette:${text}`, async (signal) =>
    text === ''
      ? []
      : (await call('GET /v1/sandboxes', { query: { name_prefix: text, limit: FOUND_SANDBOXES }, signal }))
          .data,
  );
  const own: Command[] = [
    ...LISTED.map(({ title, path }) => ({
      title: `Open ${title}`,
      run: () => go(path),
    })),
    { title: 'Create a sandbox', run: () => go('/sandboxes?create=form') },
    { title: 'Create a volume', run: () => go('/volumes?create=form') },
    { title: 'Create a key', run: () => go('/keys?create=form') },
    { title: 'Create a webhook', run: () => go('/webhooks?create=form') },
    { title: 'Verify the audit trail', run: () => go('/audit?verify=open') },
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
        aria-label="A command, or the beginning of a sandbox's name"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={commands.length > 0 ? `command-${chosen}` : undefined}
        placeholder="A command, or the beginning of a sandbox's name"
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
