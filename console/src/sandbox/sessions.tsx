import { actorOf } from '../lib/actor';
import { call } from '../lib/api';
import type { SandboxResponse, SandboxSession } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { useWhileChanging } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { ListPage } from '../parts/list-page';
import type { Column } from '../parts/table';
import { Time } from '../parts/time';

const KINDS: Record<SandboxSession['kind'], string> = {
  exec: 'Command',
  terminal: 'Terminal',
  files: 'Files',
  tcp: 'Connection',
};

/** The open sessions of all callers, which can be ended here. */
export function Sessions({ sandbox: { id } }: { sandbox: SandboxResponse }) {
  const cursor = useUrlState().get('cursor') || undefined;
  const query = { cursor, limit: 50 };
  const list = useResource(`sessions:${id}:${cursor ?? ''}`, (signal) =>
    call('GET /v1/sandboxes/{sandbox_id}/sessions', { path: { sandbox_id: id }, query, signal }),
  );
  useWhileChanging(true, list.reload);

  const end = async (session: SandboxSession) => {
    const question = { title: 'End this session?', names: [nameOf(session)], action: 'End' };
    const consequence = 'Its command is killed, and its caller is told that another caller ended it.';
    if (!(await confirm({ ...question, consequence }))) return;
    const path = { sandbox_id: id, session_id: session.id };
    await attempt(
      () => call('DELETE /v1/sandboxes/{sandbox_id}/sessions/{session_id}', { path }),
      'The session ends.',
    );
    list.reload();
  };

  const columns: readonly Column<SandboxSession>[] = [
    { title: 'Opened', cell: ({ opened_at }) => <Time at={opened_at} /> },
    { title: 'Kind', cell: ({ kind }) => KINDS[kind] },
    { title: 'Program', cell: ({ program }) => program ?? '', isWide: true },
    { title: 'User', cell: ({ user }) => user ?? '', isMinor: true },
    { title: 'Caller', cell: actorOf, isWide: true },
    {
      title: 'Actions',
      cell: (session) =>
        session.end_requested_at === null ? (
          <button type="button" aria-label={`End ${nameOf(session)}`} onClick={() => void end(session)}>
            End
          </button>
        ) : (
          'ending'
        ),
    },
  ];

  return (
    <ListPage
      resource={list}
      caption="Open sessions"
      columns={columns}
      name={nameOf}
      empty={{
        title: 'No open session',
        text: 'Commands, terminals and connections of all callers are listed here while they are open.',
      }}
    />
  );
}

function nameOf({ kind, program }: SandboxSession): string {
  return program === null ? KINDS[kind] : `${KINDS[kind]} ${program}`;
}
