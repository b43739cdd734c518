import { actorOf } from '../lib/actor';
import type { EventResponse, SandboxResponse } from '../lib/api-types';
import { Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import { useHistory } from './history';
import { inWords } from './words';

const COLUMNS: readonly Column<EventResponse>[] = [
  { title: 'Time', cell: ({ timestamp }) => <Time at={timestamp} /> },
  {
    title: 'Event',
    cell: (event) => (
      <details>
        <summary>{inWords(event)}</summary>
        <pre>{JSON.stringify(event, null, 2)}</pre>
      </details>
    ),
    isWide: true,
  },
  { title: 'Actor', cell: actorOf },
];

export function Events({ sandbox }: { sandbox: SandboxResponse }) {
  return (
    <Loaded resource={useHistory(sandbox)}>
      {({ data, has_more, next_cursor }) =>
        data.length === 0 ? (
          <Empty title="No event of this sandbox">
            <p>Its events were dropped by the retention of the audit trail.</p>
          </Empty>
        ) : (
          <>
            <Table
              caption="Events"
              columns={COLUMNS}
              rows={data}
              id={({ id }) => id}
              name={({ event_type }) => event_type}
            />
            <Pager next={next_cursor} hasMore={has_more} />
          </>
        )
      }
    </Loaded>
  );
}
