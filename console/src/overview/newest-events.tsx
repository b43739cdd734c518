import { Link } from 'wouter-preact';
import { actorOf, nameIn } from '../lib/actor';
import { call } from '../lib/api';
import { useLive } from '../lib/live';
import { useResource } from '../lib/use-resource';
import { Time } from '../parts/time';
import { inWords } from '../sandbox/words';
import { GATHER_MS } from './gather';
import { Part } from './part';

const SHOWN = 8;

/** The newest entries of the audit log, in words. */
export function NewestEvents() {
  const events = useResource('newest-events', (signal) =>
    call('GET /v1/events', { query: { limit: SHOWN }, signal }),
  );
  useLive(undefined, events.reload, GATHER_MS);
  return (
    <Part title="Newest events" resource={events} more={<Link href="/audit">Audit</Link>} class="newest">
      {({ data }) =>
        data.length === 0 ? (
          <p>Each change of this organization is listed here, with who made it.</p>
        ) : (
          <ul class="lines">
            {data.map((event) => (
              <li key={event.id}>
                <Link href={`/audit?event=${event.id}`}>{inWords(event)}</Link>
                <span class="line-rest">{nameIn(event.payload)}</span>
                <small>
                  {actorOf(event)}, <Time at={event.timestamp} relative />
                </small>
              </li>
            ))}
          </ul>
        )
      }
    </Part>
  );
}
