import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { insertEvent } from '../../../src/audit/events/queries.js';
import { readEventFilter } from '../../../src/audit/list/filter.js';
import { findSpan, readLog } from '../../../src/audit/log/log-queries.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { readEntries } from '../../../src/audit/verify/entry-batches.js';
import { inTransaction } from '../../../src/db/transaction.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals only on request. */
let service: TestService;
let client: Client;
/** The days in log order, which is not time order: the last day was written first. */
const DAYS = [9, 1, 5, 2, 5, 3, 8, 4, 7, 6];
const at = (day: number) => `2030-01-0${day}T00:00:00.000000Z`;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  await seal();
  for (const day of DAYS) {
    const content = {
      org_id: client.org.id,
      id: uuidv7(),
      occurred_at: at(day),
      category: 'test',
      event_type: day % 2 ? 'odd' : 'even',
      actor: operator('test'),
      payload: { day },
      resource_id: null,
    };
    await insertEvent(service.ctx.pool, {
      ...content,
      actor_kind: 'system',
      actor_id: 'operator',
      leaf: null,
    });
    await seal();
  }
});
afterAll(() => service.close());

const seal = () => sealEvents(service.ctx, new AbortController().signal);

async function exported(query: Record<string, string>): Promise<number[]> {
  const { text } = await client.get('/v1/events/export', { ...query, format: 'ndjson' });
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(lines.at(-1)).toHaveProperty('checkpoint');
  return lines.slice(1, -1).map(({ payload }) => payload.day);
}

test('an export of a time range has all its events, in log order', async () => {
  for (let since = 1; since <= 9; since += 1) {
    for (let until = since; until <= 9; until += 1) {
      const days = DAYS.filter((day) => day >= since && day <= until);
      expect(await exported({ since: at(since), until: at(until) })).toEqual(days);
    }
  }
  expect(await exported({ since: at(3) })).toEqual(DAYS.filter((day) => day >= 3));
  expect(await exported({ since: at(2), until: at(7), event_type: 'odd' })).toEqual([5, 5, 3, 7]);
  expect(await exported({ since: '2031-01-01T00:00:00Z' })).toEqual([]);
});

test('an export of a time range reads no entries outside the first and last of that range', async () => {
  const { pool } = service.ctx;
  const orgId = client.org.id;
  const { entries } = await readLog(pool, orgId, { afterSeq: 0 }, 100);
  const seqOf = (index: number) => entries.filter(({ occurred_at }) => occurred_at >= at(1))[index]!.seq;
  const during = { since: at(2), until: at(3) };
  expect(await findSpan(pool, orgId, during)).toEqual({ first: seqOf(3), last: seqOf(5) });
  expect(await findSpan(pool, orgId, { since: at(1), until: '2030-01-01T12:00:00.000000Z' })).toEqual({
    first: seqOf(1),
    last: seqOf(1),
  });
  expect(await findSpan(pool, orgId, { since: '2031-01-01T00:00:00.000000Z', until: undefined })).toBe(
    undefined,
  );
  const filter = readEventFilter(during);
  const after = async (afterSeq: number, upToSeq: number) =>
    inTransaction(pool, async (tx) => {
      const found: number[] = [];
      for await (const batch of readEntries(tx, orgId, { afterSeq, upToSeq, filter })) {
        found.push(...batch.map(({ seq }) => seq));
      }
      return found;
    });
  expect(await after(0, seqOf(9))).toEqual([seqOf(3), seqOf(5)]);
  // `after` narrows the requested range.
  expect(await after(seqOf(3), seqOf(9))).toEqual([seqOf(5)]);
  expect(await after(0, seqOf(4))).toEqual([seqOf(3)]);
});
