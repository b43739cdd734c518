import { useState } from 'preact/hooks';
import { useLocation, useParams } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { WebhookResponse, WebhookWithSecret } from '../lib/api-types';
import { attempt } from '../lib/attempt';
import { useLive } from '../lib/live';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { Countdown } from '../parts/countdown';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Time } from '../parts/time';
import { Deliveries } from './deliveries';
import { EditWebhook } from './edit';
import { FORMATS } from './formats';
import { RotateSecret } from './rotate-secret';
import { WebhookSecret } from './secret';
import { WebhookStatus } from './status';
import './webhooks.css';

type Opened = 'edit' | 'rotate';

export function WebhookPage() {
  const { id } = useParams<{ id: string }>();
  const path = { webhook_id: id };
  const [, go] = useLocation();
  const [opened, setOpened] = useState<Opened>();
  const [rotated, setRotated] = useState<WebhookWithSecret>();
  const [tests, setTests] = useState(0);
  const webhook = useResource(`webhook:${id}`, (signal) =>
    call('GET /v1/webhooks/{webhook_id}', { path, signal }),
  );
  useLive('webhook', webhook.reload);
  const close = () => setOpened(undefined);

  const test = async () => {
    await attempt(
      () => call('POST /v1/webhooks/{webhook_id}/test', { path }),
      ({ status, results }) => {
        if (status === 'delivered') return 'The receiver accepted the test.';
        const last = results.at(-1);
        announce(
          `The test failed: ${last?.error ?? `the receiver answered ${last?.response_status}`}.`,
          true,
        );
        return undefined;
      },
    );
    setTests(tests + 1);
  };
  const change = async (status: WebhookResponse['status']) => {
    const done = status === 'active' ? 'The webhook is active.' : 'The webhook is disabled.';
    await attempt(() => call('PATCH /v1/webhooks/{webhook_id}', { path, body: { status } }), done);
    webhook.reload();
  };
  const remove = async ({ url }: WebhookResponse) => {
    const isConfirmed = await confirm({
      title: 'Delete this webhook?',
      names: [url],
      consequence: 'Nothing more is sent to it, and its deliveries are removed. This cannot be undone.',
      action: 'Delete',
    });
    if (!isConfirmed) return;
    const isDone = await attempt(
      () => call('DELETE /v1/webhooks/{webhook_id}', { path }),
      'Deleted the webhook.',
    );
    if (isDone) go('/webhooks');
  };

  return (
    <Page
      title="Webhook"
      actions={
        webhook.data !== undefined && (
          <>
            <button type="button" class="primary" onClick={() => void test()}>
              Send a test
            </button>
            <button type="button" onClick={() => setOpened('edit')}>
              Change
            </button>
            <button
              type="button"
              onClick={() => void change(webhook.data!.status === 'active' ? 'disabled' : 'active')}
            >
              {webhook.data.status === 'active' ? 'Disable' : 'Enable'}
            </button>
            <button type="button" onClick={() => setOpened('rotate')}>
              Rotate the secret
            </button>
            <button type="button" class="danger" onClick={() => void remove(webhook.data!)}>
              Delete
            </button>
          </>
        )
      }
    >
      <Loaded resource={webhook}>
        {(data) => (
          <>
            <Shown webhook={data} reload={webhook.reload} />
            <Deliveries key={tests} webhookId={id} format={data.format} />
            {opened === 'edit' && (
              <EditWebhook
                of={data}
                close={close}
                save={async (body) => {
                  await call('PATCH /v1/webhooks/{webhook_id}', { path, body });
                  announce('Changed the webhook.');
                  close();
                  webhook.reload();
                }}
              />
            )}
            {opened === 'rotate' && (
              <RotateSecret
                webhookId={id}
                close={close}
                rotated={(next) => {
                  close();
                  setRotated(next);
                  webhook.reload();
                }}
              />
            )}
          </>
        )}
      </Loaded>
      {rotated !== undefined && <WebhookSecret of={rotated} close={() => setRotated(undefined)} />}
    </Page>
  );
}

function Shown({ webhook, reload }: { webhook: WebhookResponse; reload: () => void }) {
  const { url, description, event_types, format, previous_secret_until, created_at, updated_at } = webhook;
  return (
    <Facts
      of={[
        ['Address', <code>{url}</code>],
        ['Status', <WebhookStatus of={webhook} />],
        ['Description', description ?? '–'],
        ['Event types', event_types.length === 0 ? 'all' : event_types.join(', ')],
        ['Format', FORMATS[format]],
        [
          'Previous secret',
          previous_secret_until === null ? (
            'none'
          ) : (
            <>
              signs for <Countdown until={previous_secret_until} ended={reload} />
            </>
          ),
        ],
        ['Created', <Time at={created_at} />],
        ['Changed', <Time at={updated_at} />],
      ]}
    />
  );
}
