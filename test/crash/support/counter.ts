import { operator } from '../../../src/audit/events/actor.js';
import type { Pool } from '../../../src/db/pool.js';
import { createKey } from '../../../src/keys/create.js';
import { sleep } from '../../../src/lib/sleep.js';
import { createOrg } from '../../../src/orgs/create.js';
import { makeClient, type Client } from '../../support/client.js';
import type { Workload } from './workload.js';

const PAUSE_MS = 20;
const ANSWER_MS = 15_000;
const ACKNOWLEDGED_MS = 60_000;

/**
 * One caller that writes the next number into a label and reads it back, again and again. A number that was read or
 * acknowledged never gets smaller.
 */
export class Counter {
  private readonly stopping = new AbortController();
  private running: Promise<void> | undefined;
  private ended = false;
  /** The time of the latest acknowledgement. */
  private latest = -Infinity;

  constructor(private readonly load: Workload) {}

  async start(pool: Pool): Promise<void> {
    const org = await createOrg(pool, { name: 'Counter', slug: 'counter' }, operator('test'));
    const { key, id: keyId } = await createKey(pool, org.id, 'counter', operator('test'));
    const identity = { org, key, keyId };
    this.running = this.run((url) => makeClient(url, identity, { patience: 0 }))
      .catch((error: unknown) => {
        if (!this.stopping.signal.aborted) this.load.wrong(`the counter failed: ${String(error)}`);
      })
      .finally(() => (this.ended = true));
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.running;
  }

  /** The time of an acknowledgement after `since`. */
  async acknowledged(since: number): Promise<number> {
    const deadline = performance.now() + ACKNOWLEDGED_MS;
    while (this.latest < since) {
      if (this.ended || performance.now() > deadline)
        throw new Error('no write of the counter is acknowledged');
      await sleep(5);
    }
    return this.latest;
  }

  private async run(connect: (url: string) => Client): Promise<void> {
    const send = (method: string, path: string, body?: unknown, key?: string) =>
      this.send(connect, method, path, body, key);
    const { id } = await send('POST', '/v1/volumes', { name: 'counter' }, 'make');
    let floor = 0;
    for (let next = 1; !this.stopping.signal.aborted; next += 1) {
      await send('PATCH', `/v1/volumes/${id}`, { labels: { count: String(next) } }, `count-${next}`);
      this.latest = performance.now();
      floor = next;
      for (const path of [`/v1/volumes/${id}`, '/v1/volumes']) {
        const body = await send('GET', path);
        const volumes: { id: string; labels: { count?: string } }[] = Array.isArray(body) ? body : [body];
        const read = Number(volumes.find((one) => one.id === id)?.labels.count ?? -1);
        if (read < floor) this.load.wrong(`GET ${path} answered ${read} after ${floor} was acknowledged`);
      }
      await sleep(PAUSE_MS, this.stopping.signal);
    }
  }

  /** Repeats the request until it is answered. */
  private async send(
    connect: (url: string) => Client,
    method: string,
    path: string,
    body?: unknown,
    key?: string,
  ) {
    for (;;) {
      const signal = AbortSignal.any([this.stopping.signal, AbortSignal.timeout(ANSWER_MS)]);
      const url = await this.load.url(this.stopping.signal);
      const headers: Record<string, string> = key === undefined ? {} : { 'idempotency-key': key };
      const answer = await connect(url)
        .request(method, path, { headers, signal, ...(body === undefined ? {} : { body }) })
        .catch((error: unknown) => {
          if (this.stopping.signal.aborted) throw error;
          return undefined;
        });
      if (answer && answer.status < 300) return answer.body;
      if (answer && answer.status !== 503)
        throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
      await sleep(10, this.stopping.signal);
    }
  }
}
