import { useState } from 'preact/hooks';
import { useLocation, useParams } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { PoolWithSandboxes } from '../lib/api-types';
import { useLive, useWhileChanging } from '../lib/live';
import { may } from '../lib/session';
import { useChange } from '../lib/use-change';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { confirm } from '../parts/confirm';
import { ErrorPanel } from '../parts/error-panel';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import { PutPool } from './put';

type Member = PoolWithSandboxes['sandboxes'][number];

const COLUMNS: readonly Column<Member>[] = [
  { title: 'Name', cell: ({ name }) => name },
  { title: 'Status', cell: ({ status }) => <Badge status={status} /> },
  {
    title: 'Started',
    cell: ({ started_at }) => (started_at === null ? 'not yet' : <Time at={started_at} />),
  },
];

export function Pool() {
  const { name } = useParams<{ name: string }>();
  const [, go] = useLocation();
  const [isChanging, setChanging] = useState(false);
  const { send, problem, isBusy } = useChange();
  const pool = useResource(`pool:${name}`, (signal) =>
    call('GET /v1/pools/{name}', { path: { name }, signal }),
  );
  useLive('pool', pool.reload);
  useLive('sandbox', pool.reload);
  useWhileChanging((pool.data?.starting ?? 0) > 0, pool.reload);

  const remove = async () => {
    const isConfirmed = await confirm({
      title: 'Delete this pool?',
      names: [name],
      consequence: 'Its ready sandboxes are removed. Sandboxes that it gave away stay.',
      action: 'Delete',
    });
    if (!isConfirmed) return;
    const answer = await send(() => call('DELETE /v1/pools/{name}', { path: { name } }));
    if (answer === undefined) return;
    announce(`Deleted ${name}.`);
    go('/pools');
  };

  return (
    <Page
      title={name}
      actions={
        pool.data !== undefined &&
        may('sandboxes:write') && (
          <>
            <button type="button" onClick={() => setChanging(true)}>
              Change
            </button>
            <button type="button" class="danger" disabled={isBusy} onClick={() => void remove()}>
              Delete
            </button>
          </>
        )
      }
    >
      {problem !== undefined && <ErrorPanel problem={problem} />}
      <Loaded resource={pool}>
        {(data) => (
          <>
            <Facts
              of={[
                ['Image', <code>{data.image}</code>],
                [
                  'Digest',
                  data.image_digest === null ? 'none has started' : <code>{data.image_digest}</code>,
                ],
                ['Ready', `${data.ready} of ${data.size}`],
                [
                  'Given, and running',
                  data.most === null ? data.given : `${data.given}, at most ${data.most} run`,
                ],
                ['CPUs', data.resources.vcpus ?? 1],
                ['Memory', `${data.resources.memory_mib ?? 512} MiB`],
                ['Problem', data.last_failure_message ?? 'none'],
                ['Changed', <Time at={data.updated_at} />],
              ]}
            />
            <section class="part">
              <h2>Ready sandboxes</h2>
              {data.sandboxes.length === 0 ? (
                <p>There are none.</p>
              ) : (
                <Table
                  caption="Ready sandboxes"
                  columns={COLUMNS}
                  rows={data.sandboxes}
                  id={({ id }) => id}
                  name={({ name: own }) => own}
                />
              )}
            </section>
            {isChanging && (
              <PutPool
                of={data}
                close={() => setChanging(false)}
                saved={() => {
                  setChanging(false);
                  announce('Changed the pool.');
                  pool.reload();
                }}
              />
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}
