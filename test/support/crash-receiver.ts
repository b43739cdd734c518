import { join } from 'node:path';
import type { Pool } from '../../src/db/pool.js';
import { operator } from '../../src/events/actor.js';
import { now } from '../../src/lib/instant.js';
import { openKeyring } from '../../src/secrets/key-file.js';
import { createWebhook } from '../../src/webhooks/create.js';
import { webhookSettings } from '../../src/webhooks/settings.js';
import { startReceiver, type Receiver } from './receiver.js';

/** What a process was sending when it was killed is sent again soon. */
export const WEBHOOKS = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  ...{ timeoutMs: 1_000, claimMarginMs: 500, firstRetryMs: 20 },
};

/** Takes the events of several organizations, and some only when they come again. */
export class CrashReceiver {
  private readonly arrived = new Set<string>();

  private constructor(private readonly receiver: Receiver) {
    let count = 0;
    receiver.answer = ({ body }) => {
      count += 1;
      // Kept for their ids alone: there are many.
      receiver.messages = [];
      if (count % 20 === 0) return 503;
      this.arrived.add(body.data.id as string);
      return 200;
    };
  }

  static async make(): Promise<CrashReceiver> {
    return new CrashReceiver(await startReceiver());
  }

  /** `directory`: of the keys for secrets. */
  async listenTo(pool: Pool, orgId: string, directory: string): Promise<void> {
    const means = {
      ...{ pool, now, settings: { webhooks: WEBHOOKS } },
      keyring: openKeyring({ file: join(directory, 'secret-keys') }),
    };
    await createWebhook(means, { orgId, actor: operator('test') }, { url: this.receiver.url });
  }

  /** What has been written down and has not arrived. */
  async missing(pool: Pool): Promise<string[]> {
    const { rows } = await pool.query<{ id: string; event_type: string }>(
      "select id, event_type from events where category = 'sandbox'",
    );
    const missing = rows.filter(({ id }) => !this.arrived.has(id));
    return missing.map(({ id, event_type }) => `${event_type} ${id} was not sent to the webhook`);
  }

  async close(): Promise<void> {
    await this.receiver.close();
  }
}
