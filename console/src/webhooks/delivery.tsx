import { call } from '../lib/api';
import type { WebhookAttempt, WebhookDelivery } from '../lib/api-types';
import { useResource } from '../lib/use-resource';
import { CodeLines } from '../parts/copy';
import { Dialog } from '../parts/dialog';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Time } from '../parts/time';
import { FORMATS, type WebhookFormat } from './formats';

/** The request of a delivery, and the answer to each attempt. */
export function Delivery(props: { of: WebhookDelivery; format: WebhookFormat; close: () => void }) {
  const { of, format, close } = props;
  const { id, event_id, event_type, seq, attempts, results, created_at } = of;
  return (
    <Dialog title={event_type} close={close} wide>
      <Facts
        of={[
          ['Created', <Time at={created_at} />],
          ['Attempts', String(attempts)],
          ['Id of the delivery', <code>{id}</code>],
          ['Header webhook-id', <code>{event_id}</code>],
        ]}
      />
      <h3>Request</h3>
      {seq === null ? (
        <p>A test. Its event is not in the log.</p>
      ) : (
        <Request eventId={event_id} seq={seq} format={format} />
      )}
      <h3>Answers</h3>
      {results.length === 0 ? (
        <p>There was no attempt yet.</p>
      ) : (
        <ol class="attempts">
          {results.toReversed().map((result) => (
            <li key={result.at}>
              <Attempt of={result} />
            </li>
          ))}
        </ol>
      )}
      {results.length < attempts && <p>Only the latest {results.length} attempts are kept.</p>}
    </Dialog>
  );
}

function Request({ eventId, seq, format }: { eventId: string; seq: number; format: WebhookFormat }) {
  const event = useResource(`event:${eventId}`, (signal) =>
    call('GET /v1/events/{event_id}', { path: { event_id: eventId }, signal }),
  );
  return (
    <Loaded resource={event}>
      {(data) =>
        format === 'sandkeep' ? (
          <CodeLines
            text={JSON.stringify({ type: data.event_type, timestamp: data.timestamp, seq, data }, null, 2)}
            of="body of the request"
          />
        ) : (
          <>
            <p>The event, which the body has as {FORMATS[format]}:</p>
            <CodeLines text={JSON.stringify(data, null, 2)} of="event" />
          </>
        )
      }
    </Loaded>
  );
}

function Attempt({ of }: { of: WebhookAttempt }) {
  const { at, duration_ms, response_status, response_body, error } = of;
  return (
    <>
      <p>
        <b>{response_status ?? error ?? 'no answer'}</b> after {duration_ms} ms, <Time at={at} />
      </p>
      {response_body !== null && response_body !== '' && <CodeLines text={response_body} of="answer" />}
    </>
  );
}
