import Fastify from 'fastify';
import { expect, onTestFinished, test } from 'vitest';
import { makeSnapshotStreamer } from '../../src/access/snapshot-stream.js';
import type { Context, Shared } from '../../src/context.js';
import { RequestAdmission } from '../../src/http/admission.js';
import { Shares } from '../../src/fairness/shares.js';
import { Pace, PACE } from '../../src/fairness/pace.js';

const SETTINGS = { usagePatienceMs: 100, usageIdleMs: 60_000, usageStallMs: 60_000, usageLimitMs: 60_000 };

test('a stream that is not admitted gives its place to the next', async () => {
  const pace = new Pace(PACE);
  const shares = new Shares({
    running: { total: 1, each: 1 },
    alone: 1,
    waiting: { total: 1, each: 0 },
    maxWaitMs: 60_000,
    maxHoldMs: 60_000,
    pace,
  });
  const other = shares.enter('a', 1, () => undefined);
  const stream = makeSnapshotStreamer({ settings: SETTINGS, pace } as Shared, { total: 1, content: 'usage' });
  const app = Fastify();
  onTestFinished(() => app.close());
  app.decorateRequest('turn', null).decorateRequest('caller', null).decorateRequest('context', null);
  app.get('/', async (request, reply) => {
    request.caller = { orgId: 'a' } as never;
    request.context = {
      pool: {
        connect: async () => Promise.reject(new Error('the database is away')),
      },
    } as never as Context;
    request.admission = new RequestAdmission(shares, 'a');
    return stream(request, reply, async function* () {
      yield await Promise.resolve('');
    });
  });
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  const messageOf = async () => ((await (await fetch(url)).json()) as { message: string }).message;
  for (let count = 0; count < 3; count += 1)
    expect(await messageOf()).toContain('too many requests are in progress');
  other.release();
  expect(await messageOf()).toBe('the database is away');
});
