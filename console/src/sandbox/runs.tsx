import type { EventResponse, SandboxResponse } from '../lib/api-types';
import { duration } from '../lib/time';
import { Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import { factsOf, useHistory } from './history';
import { ENDS, RunStrip } from './run-strip';
import { inWords } from './words';

const COLUMNS: readonly Column<EventResponse>[] = [
  { title: 'Started', cell: (event) => <Time at={factsOf(event).started_at} /> },
  { title: 'Ended', cell: (event) => <Time at={factsOf(event).stopped_at} /> },
  { title: 'Duration', cell: lengthOf, isNumber: true },
  { title: 'End', cell: inWords, isWide: true },
];

function lengthOf(event: EventResponse): string {
  const { started_at, stopped_at } = factsOf(event);
  if (started_at == null || stopped_at == null) return '–';
  return duration((Date.parse(stopped_at) - Date.parse(started_at)) / 1000);
}

/** Ended runs, as the audit trail has them. */
export function Runs({ sandbox }: { sandbox: SandboxResponse }) {
  const ends = useHistory(sandbox, ENDS);
  return (
    <>
      <RunStrip sandbox={sandbox} ends={ends.data?.data ?? []} />
      {sandbox.status === 'running' && (
        <p class="panel">
          <span>
            The present run began at <Time at={sandbox.started_at} />.
          </span>
        </p>
      )}
      <Loaded resource={ends}>
        {({ data, has_more, next_cursor }) =>
          data.length === 0 ? (
            <Empty title="No run has ended yet" />
          ) : (
            <>
              <Table caption="Runs" columns={COLUMNS} rows={data} id={({ id }) => id} name={({ id }) => id} />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
    </>
  );
}
