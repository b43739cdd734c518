import { Readable } from 'node:stream';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readLog } from '../../../src/audit/log/log-queries.js';
import { verifyFile } from '../../../src/audit/verify/verify-file.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { untilSealed } from '../../support/event-log.js';
import { clientOf, importAll, line } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';

const MIB = 1024 * 1024;
const COUNT = 20;

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

/** The text compresses to almost nothing, so stored sizes do not reveal how much is read. */
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

test('long events can be imported, sealed, read in parts, exported and verified', async () => {
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

test('the sealer reads long events of an earlier release in parts, too', async () => {
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

test('pages of long events are short and never empty, and give each event exactly once', async () => {
  const org = line.org();
  const lengths = [1, 2, 3, 1, 5, 0, 0, 2, 5, 5, 0, 4, 0, 1, 1, 1, 0];
  const events = lengths.map((length, index) =>
    line.event(org, {
      timestamp: `2026-0${index < 6 ? 3 : 2}-01T00:00:${String(59 - index)}Z`,
      payload: {
        text: longText(index)
          .slice(0, 0.9 * MIB)
          .repeat(length),
      },
    }),
  );
  await importAll(service, [org, ...events]);
  const client = await clientOf(service, org);
  const found: { id: string; payload: { text: string } }[] = [];
  const counts: number[] = [];
  for (let cursor: string | undefined, reading = true; reading;) {
    const { status, body, text } = await client.get('/v1/events', {
      event_type: 'sandbox_started',
      limit: counts.length === 1 ? 3 : 100,
      ...(cursor === undefined ? {} : { cursor }),
    });
    expect(status).toBe(200);
    expect(body.data.length === 1 || text.length < 4.1 * MIB).toBe(true);
    found.push(...body.data);
    counts.push(body.data.length);
    reading = body.has_more;
    cursor = body.next_cursor;
  }
  expect(found.map(({ id, payload }) => [id, payload.text])).toEqual(
    events.map(({ id, payload }: any) => [id, payload.text]),
  );
  expect(Math.min(...counts)).toBeGreaterThan(0);
  // A page ends at 4 MiB, and has at least one event.
  expect(counts).toEqual([2, 2, 1, 3, 1, 1, 3, 4]);
});
