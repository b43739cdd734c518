import { useRef, useState } from 'preact/hooks';
import { Link, useLocation, useParams } from 'wouter-preact';
import type { Scope } from '../../../src/access/scopes';
import { announce } from '../lib/announce';
import { attempt } from '../lib/attempt';
import { call } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { useLive, useWhileChanging } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { confirm } from '../parts/confirm';
import { Empty } from '../parts/empty';
import { FileBrowser } from '../parts/file-browser';
import { Loaded } from '../parts/loaded';
import { MissingScope } from '../parts/missing-scope';
import { Page } from '../parts/page';
import { DELETE_CONSEQUENCE, VERBS, verbsOf, type Verb } from '../sandboxes/operations';
import { Capture } from '../snapshots/capture';
import { Events } from './events';
import { Fork } from './fork';
import { ForkProgress } from './fork-operation';
import { Logs } from './logs';
import { Network } from './network';
import { Overview } from './overview';
import { Previews } from './previews';
import { Runs } from './runs';
import { Sessions } from './sessions';
import { Terminals } from './terminals';
import { Usage } from './usage';

const TABS = {
  overview: 'Overview',
  runs: 'Runs',
  logs: 'Logs',
  terminal: 'Terminal',
  sessions: 'Sessions',
  files: 'Files',
  previews: 'Previews',
  network: 'Network',
  events: 'Events',
  usage: 'Usage',
} as const;
type Tab = keyof typeof TABS;
/** A tab without its scope is neither listed nor opened. The other tabs need that of the page. */
const TAB_SCOPES: Partial<Record<Tab, Scope>> = {
  runs: 'events:read',
  terminal: 'sandboxes:exec',
  sessions: 'sandboxes:exec',
  files: 'sandboxes:exec',
  previews: 'sandboxes:exec',
  events: 'events:read',
  usage: 'billing:read',
};

/** Undefined: the session opens the tab. */
function missingScope(tab: Tab): Scope | undefined {
  const scope = TAB_SCOPES[tab];
  return scope === undefined || may(scope) ? undefined : scope;
}

export function Sandbox() {
  const { id, tab = 'overview' } = useParams<{ id: string; tab?: string }>();
  const [, go] = useLocation();
  const url = useUrlState();
  const fork = url.get('fork');
  const [isCapturing, setCapturing] = useState(false);
  const isChanger = may('sandboxes:write');
  // Its terminals stay while another tab is shown.
  const hadTerminal = useRef(false);
  if (tab === 'terminal' && missingScope(tab) === undefined) hadTerminal.current = true;
  const sandbox = useResource(`sandbox:${id}`, (signal) =>
    call('GET /v1/sandboxes/{sandbox_id}', { path: { sandbox_id: id }, signal }),
  );
  useLive('sandbox', sandbox.reload);
  const status = sandbox.data?.status;
  useWhileChanging(status === 'starting' || status === 'stopping', sandbox.reload);

  const act = async (verb: Verb, { name }: SandboxResponse) => {
    if (verb === 'delete') {
      const question = { title: 'Delete this sandbox?', names: [name], action: 'Delete' };
      if (!(await confirm({ ...question, consequence: DELETE_CONSEQUENCE }))) return;
    }
    const isDone = await attempt(() => VERBS[verb].run(id), `${name} ${VERBS[verb].done}.`);
    if (isDone && verb === 'delete') go('/sandboxes');
    else sandbox.reload();
  };

  return (
    <Page
      title={sandbox.data?.name ?? 'Sandbox'}
      actions={
        sandbox.data !== undefined && (
          <>
            <span role="status">
              <Badge status={sandbox.data.status} />
            </span>
            {isChanger && (
              <>
                <Link class="button" href={`/sandboxes?create=form&from=${id}`}>
                  Duplicate
                </Link>
                <button type="button" onClick={() => url.set({ fork: 'form' })}>
                  Fork
                </button>
                <button type="button" onClick={() => setCapturing(true)}>
                  Snapshot
                </button>
                {verbsOf(sandbox.data).map((verb) => (
                  <button
                    key={verb}
                    type="button"
                    class={verb === 'delete' ? 'danger' : ''}
                    onClick={() => void act(verb, sandbox.data!)}
                  >
                    {VERBS[verb].title}
                  </button>
                ))}
              </>
            )}
          </>
        )
      }
    >
      {fork !== '' && fork !== 'form' && (
        <ForkProgress key={fork} id={fork} close={() => url.set({ fork: undefined })} />
      )}
      <nav class="tabs" aria-label="Parts of the sandbox">
        {openTabs().map(([name, title]) => (
          <Link
            key={name}
            href={name === 'overview' ? `/sandboxes/${id}` : `/sandboxes/${id}/${name}`}
            aria-current={tab === name ? 'page' : undefined}
          >
            {title}
          </Link>
        ))}
      </nav>
      <Loaded resource={sandbox}>
        {(data) => (
          <>
            {hadTerminal.current && <Terminals key={id} sandbox={data} isShown={tab === 'terminal'} />}
            <Shown key={`${id}${tab}`} tab={tab as Tab} sandbox={data} />
            {fork === 'form' && isChanger && (
              <Fork
                of={data}
                close={() => url.set({ fork: undefined })}
                requested={(operation) => url.set({ fork: operation.id }, { replace: true })}
              />
            )}
            {isCapturing && (
              <Capture
                of={data}
                close={() => setCapturing(false)}
                requested={(name) => {
                  announce(`The snapshot ${name} is being made.`);
                  go('/snapshots');
                }}
              />
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function openTabs() {
  return (Object.entries(TABS) as [Tab, string][]).filter(([tab]) => missingScope(tab) === undefined);
}

function Shown({ tab, sandbox }: { tab: Tab; sandbox: SandboxResponse }) {
  const scope = missingScope(tab);
  if (scope !== undefined) return <MissingScope scope={scope} />;
  if (tab === 'runs') return <Runs sandbox={sandbox} />;
  if (tab === 'logs') return <Logs key={sandbox.started_at} sandbox={sandbox} />;
  if (tab === 'terminal') return null;
  if (tab === 'sessions') return <Sessions sandbox={sandbox} />;
  if (tab === 'files' && sandbox.status !== 'running') {
    return (
      <Empty
        title="The sandbox does not run"
        text="Its files are listed while it runs."
        create={{ scope: 'sandboxes:write', how: 'Start it with the button above.' }}
      />
    );
  }
  if (tab === 'files') return <FileBrowser address={`/v1/sandboxes/${sandbox.id}/files`} first="/" />;
  if (tab === 'previews') return <Previews sandbox={sandbox} />;
  if (tab === 'network') return <Network sandbox={sandbox} />;
  if (tab === 'events') return <Events sandbox={sandbox} />;
  if (tab === 'usage') return <Usage sandbox={sandbox} />;
  return <Overview sandbox={sandbox} />;
}
