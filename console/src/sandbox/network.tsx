import { call } from '../lib/api';
import type { DeniedConnection, SandboxResponse } from '../lib/api-types';
import { useWhileChanging } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Empty } from '../parts/empty';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import { policyInWords } from './policy-in-words';

const KINDS: Record<DeniedConnection['kind'], string> = {
  name: 'Name',
  connection: 'Connection',
  request: 'Request',
  secret: 'Secret',
};

const COLUMNS: readonly Column<DeniedConnection>[] = [
  { title: 'Latest', cell: ({ last_at }) => <Time at={last_at} /> },
  { title: 'Kind', cell: ({ kind }) => KINDS[kind] },
  { title: 'Destination', cell: (denied) => <code>{nameOf(denied)}</code>, isWide: true },
  { title: 'Rule', cell: ({ rule }) => rule ?? '–', isMinor: true, isWide: true },
  {
    title: 'Reason',
    cell: ({ reason, secret }) => (secret === null ? reason : `${secret}: ${reason}`),
    isWide: true,
  },
  { title: 'Times', cell: ({ count }) => count, isNumber: true },
];

/** The policy of the network in words, and the refusals of the gateway. */
export function Network({ sandbox }: { sandbox: SandboxResponse }) {
  const network = sandbox.spec?.network;
  const secrets = network?.secrets ?? [];
  return (
    <>
      <section class="panel" aria-labelledby="policy">
        <h2 id="policy">Policy</h2>
        {network?.enabled === false ? (
          <p>The network is off.</p>
        ) : (
          <ul class="sentences">
            {policyInWords(network?.policy).map((sentence) => (
              <li key={sentence}>{sentence}</li>
            ))}
          </ul>
        )}
        <Facts
          of={[
            [
              'Secrets in requests',
              secrets.length === 0 ? 'none' : secrets.map(({ env_var }) => env_var).join(', '),
            ],
            [
              'Each destination is an event',
              network?.record === true ? 'yes' : 'as the organization chooses',
            ],
          ]}
        />
      </section>
      <Denied sandbox={sandbox} />
    </>
  );
}

function Denied({ sandbox: { id, status } }: { sandbox: SandboxResponse }) {
  const cursor = useUrlState().get('cursor') || undefined;
  const query = { cursor, limit: 50 };
  const list = useResource(`denied:${id}:${cursor ?? ''}`, (signal) =>
    call('GET /v1/sandboxes/{sandbox_id}/network/denied', { path: { sandbox_id: id }, query, signal }),
  );
  useWhileChanging(status === 'running' && cursor === undefined, list.reload);
  return (
    <section class="panel" aria-labelledby="denied">
      <h2 id="denied">Refused</h2>
      <Loaded resource={list}>
        {({ data, has_more, next_cursor }) =>
          data.length === 0 ? (
            <Empty title="Nothing was refused">
              <p>Names, connections and requests that the gateway refuses are listed here.</p>
            </Empty>
          ) : (
            <>
              <Table caption="Refusals" columns={COLUMNS} rows={data} id={keyOf} name={nameOf} />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
    </section>
  );
}

function nameOf({ name, address, port }: DeniedConnection): string {
  const host = name ?? address ?? '–';
  return port === null ? host : `${host}:${port}`;
}

function keyOf({ kind, protocol, name, address, port, rule, secret, reason }: DeniedConnection): string {
  return JSON.stringify([kind, protocol, name, address, port, rule, secret, reason]);
}
