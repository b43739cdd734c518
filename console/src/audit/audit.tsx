import { useRef } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { actorOf, nameIn } from '../lib/actor';
import { addressOf, call } from '../lib/api';
import { API_URL, BASE_PATH } from '../lib/base';
import type { EventResponse } from '../lib/api-types';
import { Lazy } from '../lib/lazy';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Empty } from '../parts/empty';
import { ErrorPanel } from '../parts/error-panel';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { Time } from '../parts/time';
import './audit.css';
import { EventDialog } from './event';
import { filterOf, NO_FILTER } from './filter';
import { Filters } from './filters';
import { useNewEvents } from './new-events';

const PAGE_SIZE = 50;
const STATES = { off: '', connecting: 'connecting…', live: '● live', refused: '' } as const;
const loadVerify = () => import('./verify').then((module) => module.Verify);

export function Audit() {
  const url = useUrlState();
  const filter = filterOf(url);
  const cursor = url.get('cursor') || undefined;
  const query = { ...filter, cursor, limit: PAGE_SIZE };
  const list = useResource(`events:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/events', { query, signal }),
  );
  const isLive = url.get('live') === 'on' && cursor === undefined;
  const table = useRef<HTMLDivElement>(null);
  const isRead = () =>
    scrollY > 0 || url.get('event') !== '' || table.current?.matches(':hover, :focus-within') === true;
  const stream = useNewEvents(
    isLive ? addressOf('/v1/events/stream', {}, filter) : undefined,
    isRead,
    list.reload,
  );
  const isFiltered = Object.keys(filter).length > 0;
  const isVerifying = url.get('verify') === 'open';

  return (
    <Page
      title="Audit"
      actions={
        <>
          <small role="status">{STATES[stream.state]}</small>
          <button
            type="button"
            aria-pressed={isLive}
            onClick={() => url.set({ live: isLive ? undefined : 'on' })}
          >
            Live
          </button>
          <button
            type="button"
            class={isVerifying ? '' : 'primary'}
            aria-expanded={isVerifying}
            onClick={() => url.set({ verify: isVerifying ? undefined : 'open', cursor })}
          >
            {isVerifying ? 'Close the verification' : 'Verify'}
          </button>
        </>
      }
    >
      {isVerifying && <Lazy load={loadVerify} />}
      <Filters events={list.data?.data ?? []} />
      {stream.refusal !== undefined && <ErrorPanel problem={stream.refusal} />}
      <Loaded resource={list}>
        {({ data, has_more, next_cursor }) => {
          const rows = withNew(stream.shown, data);
          const heldCount = withNew(stream.held, rows).length - rows.length;
          if (rows.length === 0) {
            return (
              <Empty title={isFiltered ? 'No event matches' : 'No event yet'} line={LINE}>
                {isFiltered && (
                  <button type="button" onClick={() => url.set(NO_FILTER)}>
                    Remove the filters
                  </button>
                )}
                <p>
                  Each change and each access writes an event. The same list with a key in the variable KEY:
                </p>
              </Empty>
            );
          }
          return (
            <>
              <div class="actions list-head">
                <small>Newest first</small>
                {heldCount > 0 && (
                  <button type="button" class="primary" onClick={stream.release}>
                    {heldCount === 1 ? 'Show 1 new event' : `Show ${heldCount} new events`}
                  </button>
                )}
                <span class="exports">
                  <small>Export {isFiltered ? 'what the filters keep' : 'all'} as</small>
                  <Export format="csv" filter={filter} />
                  <Export format="ndjson" filter={filter} />
                  <TableView of="Events" columns={COLUMNS} />
                </span>
              </div>
              <div ref={table}>
                <Table
                  caption="Events"
                  columns={COLUMNS}
                  rows={rows}
                  id={({ id }) => id}
                  name={({ event_type }) => event_type}
                />
              </div>
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          );
        }}
      </Loaded>
      {url.get('event') !== '' && <EventDialog id={url.get('event')} />}
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/events -H "authorization: Bearer $KEY"`;

const COLUMNS: readonly Column<EventResponse>[] = [
  { title: 'Time', cell: ({ timestamp }) => <Time at={timestamp} /> },
  { title: 'Event', cell: (event) => <EventLink event={event} /> },
  { title: 'Object', cell: ({ payload }) => nameIn(payload), isWide: true },
  { title: 'Actor', cell: actorOf, isWide: true },
  { title: 'Category', cell: ({ category }) => <span class="badge">{category}</span>, isMinor: true },
];

function EventLink({ event }: { event: EventResponse }) {
  const address = new URLSearchParams(location.search);
  address.set('event', event.id);
  return (
    <Link href={`/audit?${address}`} class="mono">
      {event.event_type}
    </Link>
  );
}

function Export({ format, filter }: { format: 'csv' | 'ndjson'; filter: object }) {
  return (
    <a
      class="button"
      download={`events.${format}`}
      href={BASE_PATH + addressOf('/v1/events/export', {}, { ...filter, format })}
    >
      {format.toUpperCase()}
    </a>
  );
}

function withNew(shown: readonly EventResponse[], listed: readonly EventResponse[]): EventResponse[] {
  const known = new Set(listed.map(({ id }) => id));
  return [...shown.filter(({ id }) => !known.has(id)), ...listed];
}
