import { useLayoutEffect, useRef, useState, type MutableRef } from 'preact/hooks';
import { Problem, request } from '../lib/api';
import { announce } from '../lib/announce';
import { bytes } from '../lib/bytes';
import { nameOf, pathHeader } from '../lib/file-path';
import { readText, withEnds, type FileText } from '../lib/file-text';
import { useChange } from '../lib/use-change';
import { useResource } from '../lib/use-resource';
import { confirm } from './confirm';
import { Dialog } from './dialog';
import { ErrorPanel } from './error-panel';
import { Loaded } from './loaded';

/** A browser edits a text of this size without a pause. Longer files are downloaded. */
export const MOST_EDITED_BYTES = 262_144;

interface EditorProps {
  /** The `/files` of a sandbox or of a volume. */
  address: string;
  path: string;
  isReadOnly: boolean;
  close: () => void;
  saved: () => void;
}

/** A small text file in a dialog. */
export function FileEditor({ address, path, isReadOnly, close, saved }: EditorProps) {
  const content = async (init: RequestInit = {}) =>
    request(`${address}/content`, { ...init, headers: pathHeader(path) });
  const read = async (signal?: AbortSignal) =>
    readText(new Uint8Array(await (await content(signal ? { signal } : {})).arrayBuffer()));
  const file = useResource(`edit:${address}:${path}`, read);
  const hasChanges = useRef(false);
  const leave = async () => {
    const isLeft =
      !hasChanges.current ||
      (await confirm({
        title: 'Discard your changes?',
        names: [path],
        consequence: 'The file stays as it is. The text that you typed is lost.',
        action: 'Discard',
      }));
    if (isLeft) close();
  };
  return (
    <Dialog title={nameOf(path)} close={() => void leave()} wide>
      <code class="path">{path}</code>
      <Loaded resource={file}>
        {(original) =>
          original.isText ? (
            <Text
              original={original}
              path={path}
              isReadOnly={isReadOnly}
              close={close}
              hasChanges={hasChanges}
              read={read}
              write={async (body) => {
                await content({ method: 'PUT', body });
                announce(`Saved ${nameOf(path)}.`);
                saved();
              }}
            />
          ) : (
            <p>This is not a text in UTF-8 with one kind of line ends. Download it to change it.</p>
          )
        }
      </Loaded>
    </Dialog>
  );
}

interface TextProps {
  original: FileText & { isText: true };
  path: string;
  isReadOnly: boolean;
  close: () => void;
  /** For the dialog: whether the text differs from that of the file. */
  hasChanges: MutableRef<boolean>;
  read: () => Promise<FileText>;
  write: (text: string) => Promise<void>;
}

function Text({ original, path, isReadOnly, close, hasChanges, read, write }: TextProps) {
  const [text, setText] = useState(original.text);
  const { send, problem, isBusy } = useChange();
  const field = useRef<HTMLTextAreaElement>(null);
  // The dialog gave the focus to its first control before the text was there.
  useLayoutEffect(() => field.current?.focus(), []);
  const isChanged = text !== original.text;
  hasChanges.current = isChanged;
  const save = async () => {
    const present = await send(() => read().catch(ifRemoved));
    if (present === undefined) return;
    const isSame = present.isText && present.text === original.text;
    if (
      !isSame &&
      !(await confirm({
        title: 'The file has changed meanwhile',
        names: [path],
        consequence:
          'A program or another person wrote or removed it after you opened it. Your text replaces that version.',
        action: 'Replace it',
      }))
    ) {
      return;
    }
    await send(async () => {
      await write(withEnds(text, original.ends));
      close();
    });
  };
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
      onKeyDown={(event) => {
        if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        if (isChanged && !isBusy) void save();
      }}
    >
      <textarea
        class="editor"
        aria-label={`Text of ${nameOf(path)}`}
        ref={field}
        rows={24}
        spellcheck={false}
        wrap="off"
        readOnly={isReadOnly}
        value={text}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      {problem !== undefined && <ErrorPanel problem={problem} />}
      <div class="actions">
        {!isReadOnly && (
          <button type="submit" class="primary" disabled={!isChanged || isBusy}>
            Save
          </button>
        )}
        <button type="button" onClick={close}>
          {isChanged ? 'Discard' : 'Close'}
        </button>
        <small>
          {bytes(new TextEncoder().encode(withEnds(text, original.ends)).length)},{' '}
          {original.ends === '\r\n' ? 'lines end with CR LF' : 'lines end with LF'}.
          {!isReadOnly && (
            <>
              {' '}
              <kbd>Ctrl S</kbd> saves.
            </>
          )}
        </small>
      </div>
    </form>
  );
}

/** A removed file has changed: it has no text. */
function ifRemoved(error: unknown): FileText {
  if (error instanceof Problem && error.status === 404) return { isText: false };
  throw error;
}
