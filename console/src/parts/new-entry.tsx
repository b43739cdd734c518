import { useState } from 'preact/hooks';
import { Problem, request } from '../lib/api';
import { announce } from '../lib/announce';
import { childOf, pathHeader } from '../lib/file-path';
import { useChange } from '../lib/use-change';
import { ErrorPanel } from './error-panel';
import { Field } from './field';
import { Menu } from './menu';

interface NewEntryProps {
  /** The `/files` of a sandbox or of a volume. */
  of: string;
  folder: string;
  made: (path: string, kind: 'file' | 'folder') => void;
}

/** A menu that makes an empty file or a folder. */
export function NewEntry(props: NewEntryProps) {
  return (
    <Menu title="New" label="New file or folder">
      {(close) => <Form {...props} close={close} />}
    </Menu>
  );
}

function Form({ of, folder, made, close }: NewEntryProps & { close: () => void }) {
  const [name, setName] = useState('');
  const { send, problem, isBusy } = useChange();
  const make = async (kind: 'file' | 'folder') => {
    const path = childOf(folder, name);
    const answer = await send(() => (kind === 'file' ? makeFile(of, path) : makeFolder(of, path)));
    if (answer === undefined) return;
    announce(`Made ${path}.`);
    close();
    made(path, kind);
  };
  const isDisabled = isBusy || name.trim() === '';
  return (
    <form
      class="menu-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isDisabled) void make('file');
      }}
    >
      <Field label={`Name in ${folder}`}>
        <input
          value={name}
          required
          autofocus
          spellcheck={false}
          autocomplete="off"
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
      </Field>
      <div class="actions">
        <button type="submit" class="primary" disabled={isDisabled}>
          File
        </button>
        <button type="button" disabled={isDisabled} onClick={() => void make('folder')}>
          Folder
        </button>
      </div>
      {problem !== undefined && <ErrorPanel problem={problem} />}
    </form>
  );
}

function makeFolder(files: string, path: string): Promise<Response> {
  return request(`${files}/mkdir`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ path }),
  });
}

/** A file that is there stays as it is, and is opened. */
async function makeFile(files: string, path: string): Promise<Response> {
  const headers = pathHeader(path);
  try {
    return await request(`${files}/stat`, { headers });
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 404) throw error;
  }
  return request(`${files}/content`, { method: 'PUT', headers, body: '' });
}
