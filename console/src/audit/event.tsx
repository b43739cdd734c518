import { Link } from 'wouter-preact';
import { actorOf } from '../lib/actor';
import { call } from '../lib/api';
import type { EventResponse } from '../lib/api-types';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { CodeLines, Copy } from '../parts/copy';
import { Dialog } from '../parts/dialog';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { NO_FILTER } from './filter';
import { actorIdOf } from './filters';

/** An event with its own address: `?event=` and its id. */
export function EventDialog({ id }: { id: string }) {
  const url = useUrlState();
  const event = useResource(`event:${id}`, (signal) =>
    call('GET /v1/events/{event_id}', { path: { event_id: id }, signal }),
  );
  const close = () => url.set({ event: undefined, cursor: url.get('cursor') });
  return (
    <Dialog title={event.data?.event_type ?? 'Event'} close={close} wide>
      <Loaded resource={event}>{(data) => <Shown event={data} />}</Loaded>
    </Dialog>
  );
}

function Shown({ event }: { event: EventResponse }) {
  const url = useUrlState();
  const { id, timestamp, category, event_type, actor, payload } = event;
  const only = (changes: Record<string, string>) => url.set({ ...NO_FILTER, event: undefined, ...changes });
  const sandbox = sandboxIn(payload);
  return (
    <>
      <Facts
        of={[
          ['Time', <time dateTime={timestamp}>{timestamp}</time>],
          ['Category', category],
          ['Actor', actorOf(event)],
          ['Kind of actor', actor.kind],
          ['Id of the actor', <code>{actorIdOf(event)}</code>],
          ['Id of the event', <code>{id}</code>],
        ]}
      />
      <h3>Payload</h3>
      <CodeLines text={JSON.stringify(payload, null, 2)} of="payload" />
      <details>
        <summary>Snapshot of the actor</summary>
        <CodeLines text={JSON.stringify(actor, null, 2)} of="actor" />
      </details>
      <p class="actions">
        <button type="button" onClick={() => only({ event_type })}>
          Only this type
        </button>
        <button
          type="button"
          onClick={() =>
            url.set({ event: undefined, event_type: [...url.all('event_type'), `!${event_type}`] })
          }
        >
          Without this type
        </button>
        <button type="button" onClick={() => only({ actor_id: actorIdOf(event) })}>
          Only this actor
        </button>
        {sandbox !== undefined && (
          <Link class="button" href={`/sandboxes/${encodeURIComponent(sandbox)}`}>
            The sandbox
          </Link>
        )}
        <span>
          <small>Address</small> <Copy text={location.href} of="address of the event" />
        </span>
      </p>
    </>
  );
}

function sandboxIn(payload: unknown): string | undefined {
  const { sandbox_id } = (payload ?? {}) as { sandbox_id?: unknown };
  return typeof sandbox_id === 'string' ? sandbox_id : undefined;
}
