import { afterAll, beforeAll, expect, test } from 'vitest';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { sleep } from '../../../src/lib/sleep.js';
import { makeClient } from '../../support/client.js';
import { untilSealed, wholeLog } from '../../support/event-log.js';
import { startTestService, type TestService } from '../../support/service.js';

const SERVICES = 4;
const WRITERS = 8;
const WRITES = 25;

let services: TestService[];
beforeAll(async () => {
  const first = await startTestService();
  const others = Array.from({ length: SERVICES - 1 }, () =>
    startTestService({ beside: first, sameEngine: true }),
  );
  services = [first, ...(await Promise.all(others))];
});
afterAll(async () => {
  for (const service of services.toReversed()) await service.close();
});

test('while four services write, seal and are cut off, each event enters the log once and in one order', async () => {
  const [first] = services;
  const { pool } = first!.ctx;
  const clients = [await first!.newOrg(), await first!.newOrg()] as const;
  const writing = new AbortController();

  /** Follows the log as it grows. Entries that were read must never change, and no entry may appear before them. */
  const seen: string[] = [];
  const following = (async () => {
    while (!writing.signal.aborted) {
      const ids = (await wholeLog(pool, clients[0].org.id)).map(({ seq, event_id }) => `${seq} ${event_id}`);
      expect(ids.slice(0, seen.length)).toEqual(seen);
      seen.push(...ids.slice(seen.length));
      await sleep(20);
    }
  })();
  const cutting = (async () => {
    while (!writing.signal.aborted) {
      await pool
        .query(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where datname = current_database() and pid <> pg_backend_pid()
             and query ~ 'event_chains|unsealed_events|into event_log' and state <> 'idle'`,
        )
        .catch(() => undefined);
      await sleep(150);
    }
  })();
  const made = await Promise.all(
    Array.from({ length: WRITERS }, async (_, writer) => {
      const client = writer % 2 === 0 ? clients[0] : clients[1];
      const names: string[] = [];
      for (let index = 0; index < WRITES; index += 1) {
        const { url } = services[(writer + index) % SERVICES]!;
        const name = `volume-${writer}-${index}`;
        const { status } = await makeClient(url, client).post('/v1/volumes', { name });
        if (status === 200) names.push(name);
      }
      return { client, names };
    }),
  );
  writing.abort();
  await Promise.all([following, cutting]);

  expect(made.flatMap(({ names }) => names).length).toBeGreaterThan(WRITERS);
  const trust = { keys: first!.ctx.eventKeys().known };
  for (const client of clients) {
    await untilSealed(pool, client.org.id);
    const log = await wholeLog(pool, client.org.id);
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1));
    const named = log.map(({ event }) => (event!.payload as { name: string | null }).name);
    const acknowledged = made.filter((one) => one.client === client).flatMap(({ names }) => names);
    for (const name of acknowledged) expect(named.filter((one) => one === name)).toHaveLength(1);
    expect(await verifyStore(pool, client.org.id, trust)).toMatchObject({ wrong: null, unsealed: 0 });
  }
  const final = (await wholeLog(pool, clients[0].org.id)).map(({ seq, event_id }) => `${seq} ${event_id}`);
  expect(final.slice(0, seen.length)).toEqual(seen);
});
