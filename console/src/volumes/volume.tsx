import { useState } from 'preact/hooks';
import { Link, useParams } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call, type Problem } from '../lib/api';
import type { VolumeResponse } from '../lib/api-types';
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
import { FileBrowser } from '../parts/file-browser';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { ChangeVolume } from './change';
import { nameOf } from './name';
import { Use } from './use';

export function Volume() {
  const { id } = useParams<{ id: string }>();
  const [isChanging, setChanging] = useState(false);
  const isChanger = may('volumes:write');
  const { send, problem, isBusy } = useChange();
  const volume = useResource(`volume:${id}`, (signal) =>
    call('GET /v1/volumes/{id}', { path: { id }, signal }),
  );
  useLive('volume', volume.reload);

  const remove = async (of: VolumeResponse) => {
    const isConfirmed = await confirm({
      title: 'Delete this volume?',
      names: [nameOf(of)],
      consequence: 'Its files go when the purge comes. Until then it can be restored.',
      action: 'Delete',
    });
    if (!isConfirmed) return;
    const answer = await send(() => call('DELETE /v1/volumes/{id}', { path: { id } }));
    if (answer !== undefined) announce(`Deleted ${nameOf(of)}. It can be restored until the purge.`);
    volume.reload();
  };
  const restore = async (of: VolumeResponse) => {
    const answer = await send(() => call('POST /v1/volumes/{id}/restore', { path: { id } }));
    if (answer !== undefined) announce(`Restored ${nameOf(of)}.`);
    volume.reload();
  };

  return (
    <Page
      title={volume.data === undefined ? 'Volume' : nameOf(volume.data)}
      actions={
        volume.data !== undefined && (
          <>
            <span role="status">
              <Badge status={volume.data.status} />
            </span>
            {isChanger && (
              <button type="button" onClick={() => setChanging(true)}>
                Change
              </button>
            )}
            {isChanger &&
              (volume.data.status === 'deleting' ? (
                <button
                  type="button"
                  class="primary"
                  disabled={isBusy}
                  onClick={() => void restore(volume.data!)}
                >
                  Restore
                </button>
              ) : (
                <button
                  type="button"
                  class="danger"
                  disabled={isBusy}
                  onClick={() => void remove(volume.data!)}
                >
                  Delete
                </button>
              ))}
          </>
        )
      }
    >
      {problem !== undefined && <Refusal problem={problem} />}
      <Loaded resource={volume}>
        {(data) => (
          <>
            {data.status === 'deleting' && <Purge volume={data} />}
            <Facts
              of={[
                ['Use', <Use of={data} />],
                ['Labels', Object.keys(data.labels).length === 0 ? 'none' : <Tags of={data.labels} />],
                ['Created', <Time at={data.created_at} />],
                ['Changed', <Time at={data.updated_at} />],
                [
                  'Id',
                  <>
                    <code>{id}</code> <Copy text={id} of="id" />
                  </>,
                ],
              ]}
            />
            <section class="part">
              <h2>Files</h2>
              <FileBrowser address={`/v1/volumes/${id}/files`} first="/" isReadOnly={!isChanger} />
            </section>
            {isChanging && (
              <ChangeVolume
                of={data}
                close={() => setChanging(false)}
                changed={() => {
                  setChanging(false);
                  announce('Changed the volume.');
                  volume.reload();
                }}
              />
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** A refusal with links to the sandboxes that still use the volume. */
function Refusal({ problem }: { problem: Problem }) {
  const { sandboxes } = problem.details as { sandboxes?: unknown };
  return (
    <>
      <ErrorPanel problem={problem} />
      {Array.isArray(sandboxes) && (
        <ul class="names">
          {sandboxes.map((name) => (
            <li key={String(name)}>
              <Link href={`/sandboxes?name_prefix=${encodeURIComponent(String(name))}`}>{String(name)}</Link>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** The event of the deletion has the time of the purge. A session that may read no events does not see it. */
function Purge({ volume: { id, updated_at } }: { volume: VolumeResponse }) {
  const events = useResource(
    `purge:${id}:${updated_at}`,
    may('events:read')
      ? (signal) =>
          call('GET /v1/events', {
            query: { resource_id: [id], event_type: ['volume_deletion_scheduled'], limit: 1 },
            signal,
          })
      : undefined,
  );
  const { purge_at } = (events.data?.data[0]?.payload ?? {}) as { purge_at?: unknown };
  return (
    <p class="panel">
      {typeof purge_at === 'string' ? (
        <span>
          This volume is deleted. Its files go in <Countdown until={purge_at} />, at <Time at={purge_at} />.
          Until then it can be restored.
        </span>
      ) : (
        'This volume is deleted. It can be restored until the purge.'
      )}
    </p>
  );
}
