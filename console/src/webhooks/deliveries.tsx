import { call } from '../lib/api';
import type { WebhookDelivery } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { useWhileChanging } from '../lib/live';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { Countdown } from '../parts/countdown';
import { Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import { Delivery } from './delivery';
import type { WebhookFormat } from './formats';

const STATUSES: Record<WebhookDelivery['status'], true> = { pending: true, delivered: true, failed: true };

/** The deliveries of a webhook. The status, the page and the opened delivery are in the address. */
export function Deliveries({ webhookId, format }: { webhookId: string; format: WebhookFormat }) {
  const url = useUrlState();
  const status = (url.get('status') || undefined) as WebhookDelivery['status'] | undefined;
  const cursor = url.get('cursor') || undefined;
  const query = { status, cursor, limit: 50 };
  const list = useResource(`deliveries:${webhookId}:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/webhooks/{webhook_id}/deliveries', { path: { webhook_id: webhookId }, query, signal }),
  );
  useWhileChanging(true, list.reload);
  const shown = list.data?.data.find(({ id }) => id === url.get('delivery'));
  const open = (id: string | undefined) => url.set({ delivery: id, cursor });

  const redeliver = async ({ id }: WebhookDelivery) => {
    const path = { webhook_id: webhookId, delivery_id: id };
    await attempt(
      () => call('POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver', { path }),
      'The event is sent again.',
    );
    list.reload();
  };

  const columns: readonly Column<WebhookDelivery>[] = [
    { title: 'Created', cell: ({ created_at }) => <Time at={created_at} /> },
    {
      title: 'Event',
      cell: ({ id, event_type }) => (
        <button type="button" class="link" onClick={() => open(id)}>
          {event_type}
        </button>
      ),
    },
    {
      title: 'Status',
      cell: (delivery) => (
        <>
          <Badge status={delivery.status} />
          {delivery.next_attempt_at !== null && (
            <small>
              next attempt in <Countdown until={delivery.next_attempt_at} />
            </small>
          )}
        </>
      ),
    },
    { title: 'Attempts', cell: ({ attempts }) => attempts, isNumber: true, isMinor: true },
    { title: 'Last answer', cell: ({ results }) => lastAnswer(results), isMinor: true },
    {
      title: 'Actions',
      cell: (delivery) =>
        delivery.status !== 'pending' && (
          <button
            type="button"
            aria-label={`Redeliver ${delivery.event_type}`}
            onClick={() => void redeliver(delivery)}
          >
            Redeliver
          </button>
        ),
    },
  ];

  return (
    <section class="part">
      <h2>Deliveries</h2>
      <div class="choices" role="group" aria-label="Status of the deliveries">
        {Object.keys(STATUSES).map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={status === name}
            onClick={() => url.set({ status: status === name ? undefined : name })}
          >
            {name}
          </button>
        ))}
      </div>
      <Loaded resource={list}>
        {({ data, has_more, next_cursor }) =>
          data.length === 0 ? (
            <Empty title={status === undefined ? 'Nothing was sent yet' : `No delivery is ${status}`}>
              <p>Each event of the chosen types is listed here for 30 days. “Send a test” sends one now.</p>
            </Empty>
          ) : (
            <>
              <Table
                caption="Deliveries"
                columns={columns}
                rows={data}
                id={({ id }) => id}
                name={({ event_type }) => event_type}
              />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
      {shown !== undefined && <Delivery of={shown} format={format} close={() => open(undefined)} />}
    </section>
  );
}

function lastAnswer(results: WebhookDelivery['results']): string {
  const last = results.at(-1);
  if (last === undefined) return '–';
  return last.response_status === null ? (last.error ?? 'none') : String(last.response_status);
}
