import { expect, test } from 'vitest';
import { SharedReads, type LogPlace } from '../../src/audit/list/shared-reads.js';
import type { Context } from '../../src/context.js';
import { RequestAdmission } from '../../src/http/admission.js';
import { Shares } from '../../src/fairness/shares.js';
import { Pace, PACE } from '../../src/fairness/pace.js';

const shares = () =>
  new Shares({
    running: { total: 2, each: 1 },
    alone: 1,
    pace: new Pace(PACE),
    waiting: { total: 1_000, each: 500 },
    maxWaitMs: 60_000,
    maxHoldMs: 60_000,
  });
const filter = { columns: [], since: undefined, until: undefined };
const place = (orgId: string, afterSeq: number): LogPlace => ({
  orgId,
  filter,
  afterSeq,
  format: 'sandkeep',
});

/** Streams whose reads are counted, and last for a moment. */
function countedReads() {
  const begun: LogPlace[] = [];
  const reads = new SharedReads(async (_ctx, asked) => {
    begun.push(asked);
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (asked.afterSeq < 0) throw new Error('the database is away');
    const seq = asked.afterSeq + 1;
    const text = Buffer.from(`${asked.orgId} ${asked.afterSeq}`);
    return { pieces: [{ seq, text }], seq, more: false };
  });
  const all = shares();
  const next = async (asked: LogPlace, notBefore = 0) =>
    reads.next({} as Context, new RequestAdmission(all, asked.orgId), asked, notBefore);
  return { begun, next };
}

test('streams of an organization at the same position share one read, and others have their own', async () => {
  const { begun, next } = countedReads();
  const asked = Array.from({ length: 200 }, (_, index) => place(index % 50 === 0 ? 'other' : 'many', 7));
  const answers = await Promise.all(asked.map((each) => next(each)));
  expect(answers.map(({ pieces }) => pieces[0]!.text.toString())).toEqual(
    asked.map(({ orgId }) => `${orgId} 7`),
  );
  expect(begun.map(({ orgId }) => orgId).toSorted()).toEqual(['many', 'other']);
});

test('a read that began before a change answers no stream that knows of the change', async () => {
  const { begun, next } = countedReads();
  await next(place('many', 7));
  await next(place('many', 7), performance.now());
  expect(begun).toHaveLength(2);
});

test('streams at other positions or with other filters read for themselves', async () => {
  const { begun, next } = countedReads();
  await next(place('many', 7));
  await next(place('many', 8));
  await next({ ...place('many', 8), filter: { ...filter, since: '2026-01-01T00:00:00Z' } });
  await next({ ...place('many', 8), format: 'ocsf' });
  expect(begun).toHaveLength(4);
});

test('a read that failed is not shared with later streams', async () => {
  const { begun, next } = countedReads();
  await expect(next(place('many', -1))).rejects.toThrow('away');
  await expect(next(place('many', -1))).rejects.toThrow('away');
  expect(begun).toHaveLength(2);
});
