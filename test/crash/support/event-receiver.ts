import { join } from 'node:path';
import { operator } from '../../../src/audit/events/actor.js';
import type { Pool } from '../../../src/db/pool.js';
import { now } from '../../../src/lib/instant.js';
import { openKeyring } from '../../../src/secrets/key-file.js';
import { webhookSettings } from '../../../src/settings.js';
import { createWebhook } from '../../../src/webhooks/create.js';
import { startReceiver, verify, type Receiver } from '../../support/webhook-receiver.js';

/** The deliveries of a killed process are retried soon. */
export const WEBHOOKS = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  timeoutMs: 5_000,
  claimMarginMs: 500,
  firstRetryMs: 20,
};

/** Receives the events of several organizations, and accepts some only at a retry. */
export class CrashReceiver {
  private readonly arrived = new Set<string>();
  /** The secrets by organization. */
  private readonly secrets = new Map<string, string>();
  private readonly wrong: string[] = [];

  private constructor(private readonly receiver: Receiver) {
    let count = 0;
    receiver.answer = ({ body, headers, text }) => {
      count += 1;
      const { id, org_id: orgId } = body.data as { id: string; org_id: string };
      const secret = this.secrets.get(orgId);
      if (secret === undefined || headers['webhook-id'] !== id || !verify(secret, headers, text)) {
        this.wrong.push(`${body.type} ${id} came to the webhook without the signature of its organization`);
      }
      // The ids suffice, and there are many messages.
      receiver.messages = [];
      if (count % 20 === 0) return 503;
      this.arrived.add(id);
      return 200;
    };
  }

  static async make(): Promise<CrashReceiver> {
    return new CrashReceiver(await startReceiver());
  }

  /** `directory`: with the keys for secrets. */
  async listenTo(pool: Pool, orgId: string, directory: string): Promise<void> {
    const means = {
      pool,
      now,
      settings: { webhooks: WEBHOOKS },
      keyring: openKeyring({ file: join(directory, 'secret-keys') }),
    };
    const by = { orgId, actor: operator('test') };
    const { secret } = await createWebhook(means, by, { url: this.receiver.url });
    this.secrets.set(orgId, secret);
  }

  /** Events that arrived but are not stored, or have a wrong signature. */
  async invented(pool: Pool): Promise<string[]> {
    const { rows } = await pool.query<{ id: string }>(
      `select id from unnest($1::uuid[]) as arrived (id) where id not in (select event_id from event_log)`,
      [[...this.arrived]],
    );
    return [...this.wrong, ...rows.map(({ id }) => `${id} came to the webhook and is not in the event log`)];
  }

  /** Stored events that have not arrived, and the results of their attempts. */
  async missing(pool: Pool): Promise<string[]> {
    const { rows } = await pool.query<{ id: string; event_type: string; attempts: string }>(
      `select e.id, e.event_type, concat_ws(' ', w.failures, w.resume_at, d.status, d.due_at, d.results) as attempts
       from events e join webhooks w using (org_id)
       left join webhook_deliveries d on d.org_id = w.org_id and d.webhook_id = w.id and d.event_id = e.id
       where e.category = 'sandbox'`,
    );
    const missing = rows.filter(({ id }) => !this.arrived.has(id));
    return missing.map((each) => `${each.event_type} ${each.id} did not reach the webhook: ${each.attempts}`);
  }

  async close(): Promise<void> {
    await this.receiver.close();
  }
}
