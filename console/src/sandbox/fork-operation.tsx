import { Link } from 'wouter-preact';
import { sentence } from '../lib/advice';
import { call } from '../lib/api';
import type { ForkedSandbox, ForkOperation } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { useLive, useWhileChanging } from '../lib/live';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { Loaded } from '../parts/loaded';
import { Table, type Column } from '../parts/table';

const COLUMNS: readonly Column<ForkedSandbox>[] = [
  { title: 'Copy', cell: ({ id, name }) => <Link href={`/sandboxes/${id}`}>{name}</Link>, isWide: true },
  { title: 'Status', cell: ({ status }) => <Badge status={status} /> },
];

/** The progress of a fork, with its copies. */
export function ForkProgress({ id, close }: { id: string; close: () => void }) {
  const operation = useResource(`fork:${id}`, (signal) =>
    call('GET /v1/fork-operations/{id}', { path: { id }, signal }),
  );
  useLive('sandbox', operation.reload);
  useWhileChanging(operation.data !== undefined && isChanging(operation.data), operation.reload);
  return (
    <section class="panel" aria-labelledby="fork">
      <header class="actions">
        <h2 id="fork">Fork</h2>
        {operation.data !== undefined && (
          <span role="status">
            <Badge status={operation.data.status.replace('_', ' ')} />
          </span>
        )}
        <button type="button" class="quiet bar-end" aria-label="Close the fork" onClick={close}>
          ✕
        </button>
      </header>
      <Loaded resource={operation}>
        {(data) => (
          <>
            <p class={data.status === 'failed' ? 'fault-message' : ''}>{inWords(data)}</p>
            {data.sandboxes.length > 0 && (
              <Table
                caption="Copies"
                columns={COLUMNS}
                rows={data.sandboxes}
                id={({ id: copy }) => copy}
                name={({ name }) => name}
              />
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

function isChanging({ status, sandboxes }: ForkOperation): boolean {
  const isUnfinished = status === 'queued' || status === 'in_progress';
  return isUnfinished || sandboxes.some((copy) => copy.status === 'starting' || copy.status === 'stopping');
}

function inWords({ status, error, sandbox_name, size_bytes, sandboxes }: ForkOperation): string {
  if (status === 'queued') return `The capture of the disk of ${sandbox_name} waits for its turn.`;
  if (status === 'in_progress') return `The disk of ${sandbox_name} is being captured.`;
  if (status === 'failed') return sentence(`No copies are made: ${error?.message ?? 'the capture failed'}`);
  if (sandboxes.length === 0) return 'The copies were deleted.';
  return `The disk is captured${size_bytes === null ? '' : `, with ${bytes(size_bytes)} above the image`}.`;
}
