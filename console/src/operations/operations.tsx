import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { ForkSummary, SnapshotOperation } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { useLive, useWhileChanging } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { ListPage } from '../parts/list-page';
import { Page } from '../parts/page';
import type { Column } from '../parts/table';
import { Time } from '../parts/time';

interface PageRequest {
  query: { cursor: string | undefined; limit: number };
  signal: AbortSignal;
}
interface PageOf<T> {
  data: readonly T[];
  has_more: boolean;
  next_cursor?: string | null;
}

const isUnfinished = ({ status }: { status: string }) => status === 'queued' || status === 'in_progress';

const ENDS = {
  title: 'Ended',
  cell: ({ completed_at }: { completed_at: string | null }) => <Time at={completed_at} relative />,
  isMinor: true,
} as const;

const FORKS: readonly Column<ForkSummary>[] = [
  {
    title: 'Sandbox',
    // The page of the sandbox shows the copies of the fork. A deleted sandbox has no page.
    cell: ({ id, sandbox_id, sandbox_name }) => (
      <Link href={`/sandboxes/${sandbox_id}?fork=${id}`}>{sandbox_name}</Link>
    ),
    isWide: true,
  },
  { title: 'Copies', cell: ({ count }) => count, isNumber: true },
  { title: 'Status', cell: ({ status }) => <Badge status={status.replace('_', ' ')} /> },
  {
    title: 'Captured',
    cell: ({ size_bytes }) => (size_bytes === null ? '–' : bytes(size_bytes)),
    isNumber: true,
    isMinor: true,
  },
  { title: 'Reason', cell: ({ error }) => error?.message ?? '', isMinor: true, isWide: true },
  { title: 'Requested', cell: ({ created_at }) => <Time at={created_at} relative />, isMinor: true },
  ENDS,
];

const CAPTURES: readonly Column<SnapshotOperation>[] = [
  {
    title: 'Snapshot',
    cell: ({ name, result }) =>
      result === null ? name : <Link href={`/snapshots/${result.id}`}>{name}</Link>,
    isWide: true,
  },
  {
    title: 'Sandbox',
    cell: ({ sandbox_id, sandbox_name }) =>
      sandbox_id === null ? 'imported' : <Link href={`/sandboxes/${sandbox_id}`}>{sandbox_name}</Link>,
  },
  { title: 'Status', cell: ({ status }) => <Badge status={status.replace('_', ' ')} /> },
  { title: 'Reason', cell: ({ error }) => error?.message ?? '', isMinor: true, isWide: true },
  { title: 'Requested', cell: ({ created_at }) => <Time at={created_at} relative />, isMinor: true },
  ENDS,
];

/** Forks and captures, also those that ended. */
export function Operations() {
  const url = useUrlState();
  const isCaptures = url.get('kind') === 'captures';
  return (
    <Page title="Operations">
      <div class="choices" role="group" aria-label="Kind of the operations">
        <button type="button" aria-pressed={!isCaptures} onClick={() => url.set({ kind: undefined })}>
          Forks
        </button>
        <button type="button" aria-pressed={isCaptures} onClick={() => url.set({ kind: 'captures' })}>
          Snapshots
        </button>
      </div>
      {isCaptures ? <Captures /> : <Forks />}
    </Page>
  );
}

/** A page of operations, loaded again on events of `topic` and while one of its operations is unfinished. */
function useOperations<T extends { status: string }>(
  topic: 'sandbox' | 'snapshot',
  load: (page: PageRequest) => Promise<PageOf<T>>,
) {
  const query = { cursor: useUrlState().get('cursor') || undefined, limit: 50 };
  const list = useResource(`operations:${topic}:${query.cursor ?? ''}`, (signal) => load({ query, signal }));
  useLive(topic, list.reload);
  useWhileChanging(list.data?.data.some(isUnfinished) ?? false, list.reload);
  return list;
}

function Forks() {
  const list = useOperations('sandbox', (page) => call('GET /v1/fork-operations', page));
  return (
    <ListPage
      resource={list}
      caption="Forks"
      columns={FORKS}
      name={({ sandbox_name }) => sandbox_name}
      empty={{
        title: 'No fork yet',
        text: 'A fork makes copies of a sandbox from one capture of its disk.',
        create: { scope: 'sandboxes:write', how: 'Choose “Fork” on the page of a sandbox.' },
      }}
    />
  );
}

function Captures() {
  const list = useOperations('snapshot', (page) => call('GET /v1/snapshot-operations', page));
  return (
    <ListPage
      resource={list}
      caption="Captures"
      columns={CAPTURES}
      name={({ name }) => name}
      empty={{
        title: 'No capture yet',
        text: 'A capture of a disk makes a snapshot.',
        create: { scope: 'sandboxes:write', how: 'Choose “Snapshot” on the page of a sandbox.' },
      }}
    />
  );
}
