import { useState } from 'preact/hooks';
import { Link, useParams } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { SnapshotResponse } from '../lib/api-types';
import { BASE_PATH } from '../lib/base';
import { bytes } from '../lib/bytes';
import { useLive } from '../lib/live';
import { may } from '../lib/session';
import { useChange } from '../lib/use-change';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { confirm } from '../parts/confirm';
import { Copy } from '../parts/copy';
import { Countdown } from '../parts/countdown';
import { ErrorPanel } from '../parts/error-panel';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { StartFrom } from '../sandboxes/start-from';

export function Snapshot() {
  const { id } = useParams<{ id: string }>();
  const [isStarting, setStarting] = useState(false);
  const { send, problem, isBusy } = useChange();
  const snapshot = useResource(`snapshot:${id}`, (signal) =>
    call('GET /v1/snapshots/{id}', { path: { id }, signal }),
  );
  useLive('snapshot', snapshot.reload);

  const remove = async ({ name }: SnapshotResponse) => {
    const isConfirmed = await confirm({
      title: 'Delete this snapshot?',
      names: [name],
      consequence: 'Its data goes when the purge comes. Sandboxes that were made from it keep their disks.',
      action: 'Delete',
    });
    if (!isConfirmed) return;
    const answer = await send(() => call('DELETE /v1/snapshots/{id}', { path: { id } }));
    if (answer !== undefined) announce(`Deleted ${name}. It can be restored until the purge.`);
    snapshot.reload();
  };
  const restore = async ({ name }: SnapshotResponse) => {
    const answer = await send(() => call('POST /v1/snapshots/{id}/restore', { path: { id } }));
    if (answer !== undefined) announce(`Restored ${name}.`);
    snapshot.reload();
  };

  return (
    <Page
      title={snapshot.data?.name ?? 'Snapshot'}
      actions={
        snapshot.data !== undefined && (
          <>
            <span role="status">
              <Badge status={snapshot.data.status} />
            </span>
            {may('sandboxes:exec') && (
              <a class="button" href={`${BASE_PATH}/v1/snapshots/${id}/export`} download>
                Export
              </a>
            )}
            {may('sandboxes:write') &&
              (snapshot.data.status === 'deleting' ? (
                <button
                  type="button"
                  class="primary"
                  disabled={isBusy}
                  onClick={() => void restore(snapshot.data!)}
                >
                  Restore
                </button>
              ) : (
                <>
                  <button type="button" class="primary" onClick={() => setStarting(true)}>
                    Start a sandbox
                  </button>
                  <button
                    type="button"
                    class="danger"
                    disabled={isBusy}
                    onClick={() => void remove(snapshot.data!)}
                  >
                    Delete
                  </button>
                </>
              ))}
          </>
        )
      }
    >
      {problem !== undefined && <ErrorPanel problem={problem} />}
      <Loaded resource={snapshot}>
        {(data) => (
          <>
            {data.purge_at !== null && (
              <p class="panel">
                <span>
                  This snapshot is deleted. Its data goes in <Countdown until={data.purge_at} />, at{' '}
                  <Time at={data.purge_at} />. Until then it can be restored.
                </span>
              </p>
            )}
            <Facts of={factsOf(data)} />
            {isStarting && (
              <StartFrom
                source="snapshot"
                image={{ type: 'disk_snapshot', id }}
                labels={data.labels}
                close={() => setStarting(false)}
              />
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function factsOf({ id, size_bytes, sandbox_id, manifest, labels, digest, created_at }: SnapshotResponse) {
  const source =
    sandbox_id === null ? (
      'imported'
    ) : (
      <Link href={`/sandboxes/${sandbox_id}`}>{manifest.source_sandbox}</Link>
    );
  return [
    ['Size', bytes(size_bytes)],
    ['Sandbox', source],
    ['Image', <code>{manifest.image.ref}</code>],
    ['Labels', Object.keys(labels).length === 0 ? 'none' : <Tags of={labels} />],
    ['Digest', <code>{digest}</code>],
    ['Created', <Time at={created_at} />],
    [
      'Id',
      <>
        <code>{id}</code> <Copy text={id} of="id" />
      </>,
    ],
  ] as const;
}
