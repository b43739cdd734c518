import { Readable } from 'node:stream';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readLog } from '../src/events/log.js';
import { verifyFile } from '../src/events/verify-file.js';
import { verifyStore } from '../src/events/verify-store.js';
import { untilSealed } from './support/event-log.js';
import { clientOf, importAll, line } from './support/history.js';
import { startTestService, type TestService } from './support/service.js';

const MIB = 1024 * 1024;
const COUNT = 20;

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

/** Compresses to next to nothing, so that how much is read cannot be told from what is stored. */
const longText = (index: number) => `${index} `.repeat(MIB / `${index} `.length);

async function expectReadInParts(orgId: string): Promise<void> {
  const { pool } = service.ctx;
  await untilSealed(pool, orgId, 60_000);
  const parts: number[] = [];
  for (let afterSeq = 0, reading = true; reading;) {
    const { entries, more } = await readLog(pool, orgId, { afterSeq }, 500);
    const bytes = entries.reduce((sum, { event }) => sum + JSON.stringify(event?.payload ?? null).length, 0);
    expect(bytes).toBeLessThan(6 * MIB);
    parts.push(entries.length);
    afterSeq = entries.at(-1)!.seq;
    reading = more;
  }
  expect(parts.reduce((sum, part) => sum + part, 0)).toBeGreaterThanOrEqual(COUNT);
  expect(parts.length).toBeGreaterThanOrEqual(COUNT / 6);
}

test('long events are imported, sealed, read in parts, exported and verified', async () => {
  const org = line.org();
  const events = Array.from({ length: COUNT }, (_, index) =>
    line.event(org, { payload: { text: longText(index) } }),
  );
  expect(await importAll(service, [org, ...events])).toMatchObject({ committed: true });
  const client = await clientOf(service, org);
  await expectReadInParts(client.org.id);
  const trust = { keys: service.ctx.eventKeys().known, accepted: new Set<string>() };
  const stored = await verifyStore(service.ctx.pool, client.org.id, trust);
  expect(stored.wrong).toBeNull();
  const { text } = await client.get('/v1/events/export');
  const { verdict } = await verifyFile(Readable.from([Buffer.from(text)]), trust);
  expect([verdict.wrong, verdict.entries]).toEqual([null, stored.entries]);
  const lines = text
    .trimEnd()
    .split('\n')
    .map((each) => JSON.parse(each));
  const texts = new Map<string, string>(lines.map(({ id, payload }) => [id, payload?.text]));
  expect(events.every(({ id, payload }: any) => texts.get(id) === payload.text)).toBe(true);
});

test('those that an earlier release left are sealed in parts, too', async () => {
  const client = await service.newOrg();
  const { pool, now } = service.ctx;
  for (let index = 0; index < COUNT; index += 1) {
    await pool.query(
      `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
       values ($1, $2, $3, 'sandbox', 'sandbox_created', '{"kind":"system","code":"test"}', $4, 'system', 'test')`,
      [client.org.id, uuidv7(), now(), JSON.stringify({ text: longText(index) })],
    );
  }
  await expectReadInParts(client.org.id);
});
