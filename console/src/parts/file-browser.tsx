import { useState } from 'preact/hooks';
import { request } from '../lib/api';
import type { SandboxFile, SandboxFileList } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { bytes } from '../lib/bytes';
import { childOf, nameOf, parentOf, pathHeader } from '../lib/file-path';
import { save } from '../lib/save';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { confirm } from './confirm';
import { Empty } from './empty';
import { FileEditor, MOST_EDITED_BYTES } from './file-editor';
import { Loaded } from './loaded';
import { LongTable } from './long-table';
import { NewEntry } from './new-entry';
import type { Column } from './table';
import { Time } from './time';

/**
 * The files below `address`, which is the `/files` of a sandbox or of a volume. The folder is in the address of the
 * page.
 */
export function FileBrowser(props: { address: string; first: string; isReadOnly?: boolean }) {
  const { address, first, isReadOnly = false } = props;
  const url = useUrlState();
  const folder = url.get('folder') || first;
  const [isBusy, setBusy] = useState(false);
  const list = useResource(`${address}:${folder}`, async (signal) => {
    const answer = await request(address, { headers: pathHeader(folder), signal });
    return (await answer.json()) as SandboxFileList;
  });
  const open = (path: string) => url.set({ folder: path === first ? undefined : path, file: undefined });
  // The size is known before a file is read.
  const edited = list.data?.entries.find((file) => file.path === url.get('file') && canEdit(file));
  const change = async (run: () => Promise<unknown>, done: string) => {
    setBusy(true);
    await attempt(run, done);
    setBusy(false);
    list.reload();
  };
  const content = (path: string, init: RequestInit = {}) =>
    request(`${address}/content`, { ...init, headers: pathHeader(path) });

  const upload = async (input: HTMLInputElement) => {
    for (const file of input.files ?? []) {
      await change(
        () => content(childOf(folder, file.name), { method: 'PUT', body: file }),
        `Uploaded ${file.name}.`,
      );
    }
    input.value = '';
  };
  const download = (path: string) =>
    attempt(
      async () => save(await (await content(path)).blob(), nameOf(path)),
      `Downloaded ${nameOf(path)}.`,
    );
  const remove = async ({ path, kind }: SandboxFile) => {
    const isConfirmed = await confirm({
      title: kind === 'directory' ? 'Delete this folder?' : 'Delete this file?',
      names: [path],
      consequence: 'It goes with everything in it. This cannot be undone.',
      action: 'Delete',
    });
    if (!isConfirmed) return;
    const headers = {
      ...pathHeader(path),
      ...(kind === 'directory' ? { 'x-msb-file-recursive': 'true' } : {}),
    };
    await change(() => request(address, { method: 'DELETE', headers }), `Deleted ${nameOf(path)}.`);
  };

  const columns: readonly Column<SandboxFile>[] = [
    {
      title: 'Name',
      cell: (file) => {
        const name = nameOf(file.path);
        if (file.kind === 'directory') {
          return (
            <button type="button" class="link" title={name} onClick={() => open(file.path)}>
              {name}/
            </button>
          );
        }
        if (!canEdit(file)) return name;
        return (
          <button type="button" class="link" title={name} onClick={() => url.set({ file: file.path })}>
            {name}
          </button>
        );
      },
      isWide: true,
      value: ({ path }) => nameOf(path),
    },
    {
      title: 'Size',
      cell: ({ kind, size }) => (kind === 'file' ? bytes(size) : kind),
      isNumber: true,
      value: ({ kind, size }) => (kind === 'file' ? size : undefined),
    },
    {
      title: 'Changed',
      cell: ({ modified_at }) => <Time at={modified_at} />,
      isMinor: true,
      value: ({ modified_at }) => modified_at,
    },
    { title: 'Mode', cell: ({ mode }) => <code>{(mode % 0o10000).toString(8)}</code>, isMinor: true },
    {
      title: 'Actions',
      cell: (file) => (
        <span class="actions">
          {file.kind === 'file' && (
            <button
              type="button"
              aria-label={`Download ${nameOf(file.path)}`}
              onClick={() => void download(file.path)}
            >
              Download
            </button>
          )}
          {!isReadOnly && (
            <button
              type="button"
              class="danger"
              aria-label={`Delete ${nameOf(file.path)}`}
              onClick={() => void remove(file)}
            >
              Delete
            </button>
          )}
        </span>
      ),
    },
  ];

  return (
    <>
      <div class="actions">
        <button type="button" disabled={folder === first} onClick={() => open(parentOf(folder))}>
          Parent folder
        </button>
        <code class="path">{folder}</code>
        {!isReadOnly && (
          <>
            <NewEntry
              of={address}
              folder={folder}
              made={(path, kind) => {
                list.reload();
                if (kind === 'file') url.set({ file: path });
                else open(path);
              }}
            />
            <label class="button">
              Upload
              <input
                class="unseen"
                type="file"
                multiple
                disabled={isBusy}
                onChange={({ currentTarget }) => void upload(currentTarget)}
              />
            </label>
          </>
        )}
      </div>
      <Loaded resource={list}>
        {({ entries }) =>
          entries.length === 0 ? (
            <Empty title="This folder is empty">
              {!isReadOnly && <p>Upload files, or make one here, with the buttons above.</p>}
            </Empty>
          ) : (
            <LongTable
              key={folder}
              caption={`Files of ${folder}`}
              columns={columns}
              rows={entries}
              id={({ path }) => path}
              name={({ path }) => nameOf(path)}
            />
          )
        }
      </Loaded>
      {edited !== undefined && (
        <FileEditor
          key={edited.path}
          address={address}
          path={edited.path}
          isReadOnly={isReadOnly}
          close={() => url.set({ file: undefined }, { replace: true })}
          saved={list.reload}
        />
      )}
    </>
  );
}

function canEdit({ kind, size }: SandboxFile): boolean {
  return kind === 'file' && size <= MOST_EDITED_BYTES;
}
