import { useState } from 'preact/hooks';
import { actorOf } from '../lib/actor';
import { call } from '../lib/api';
import type { PreviewResponse, SandboxResponse } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { useLive } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { ListPage } from '../parts/list-page';
import type { Column } from '../parts/table';
import { Time } from '../parts/time';
import { OpenPort } from './open-port';

/** The open previews of all callers, which can be revoked here, and the way to another one. */
export function Previews({ sandbox: { id } }: { sandbox: SandboxResponse }) {
  const [isOpening, setOpening] = useState(false);
  const cursor = useUrlState().get('cursor') || undefined;
  const query = { cursor, limit: 50 };
  const list = useResource(`previews:${id}:${cursor ?? ''}`, (signal) =>
    call('GET /v1/sandboxes/{sandbox_id}/previews', { path: { sandbox_id: id }, query, signal }),
  );
  useLive('sandbox', list.reload);

  const revoke = async (preview: PreviewResponse) => {
    const question = { title: 'Revoke this preview?', names: [nameOf(preview)], action: 'Revoke' };
    const consequence = 'Its link ends, and its open connections close at once.';
    if (!(await confirm({ ...question, consequence }))) return;
    const path = { sandbox_id: id, preview_id: preview.id };
    await attempt(
      () => call('DELETE /v1/sandboxes/{sandbox_id}/previews/{preview_id}', { path }),
      'The preview is revoked.',
    );
    list.reload();
  };

  const columns: readonly Column<PreviewResponse>[] = [
    { title: 'Port', cell: ({ port }) => port, isNumber: true },
    { title: 'Label', cell: ({ label }) => label ?? '', isMinor: true, isWide: true },
    {
      title: 'Access',
      cell: ({ public: isPublic }) => (isPublic ? 'everybody' : 'by its link'),
      isMinor: true,
    },
    { title: 'Caller', cell: ({ created_by: actor }) => actorOf({ actor }), isMinor: true, isWide: true },
    { title: 'Ends', cell: ({ expires_at }) => <Time at={expires_at} /> },
    { title: 'Used', cell: ({ last_used_at }) => <Time at={last_used_at} />, isMinor: true },
    {
      title: 'Actions',
      cell: (preview) => (
        <button type="button" aria-label={`Revoke ${nameOf(preview)}`} onClick={() => void revoke(preview)}>
          Revoke
        </button>
      ),
    },
  ];

  return (
    <>
      <p class="actions">
        <button type="button" class="primary" onClick={() => setOpening(true)}>
          Open port
        </button>
      </p>
      {isOpening && <OpenPort sandboxId={id} close={() => setOpening(false)} opened={list.reload} />}
      <ListPage
        resource={list}
        caption="Open previews"
        columns={columns}
        name={nameOf}
        empty={{
          title: 'No open preview',
          text: 'A preview shows a port of the sandbox in a browser, for as long as you choose.',
        }}
      />
    </>
  );
}

function nameOf({ port, label }: PreviewResponse): string {
  return label === null ? `port ${port}` : `port ${port}, ${label}`;
}
