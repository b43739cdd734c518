import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { LogChunk, LogQuery } from '../../../src/engine/runtime.js';
import { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Client } from '../../support/client.js';
import { openEvents } from '../../support/event-stream.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const READERS = 8;
const LINE_MS = 0.25;
let lines = 0;

/** Its logs never end, and each line takes time of the processor. */
class FloodingRuntime extends SimulatedRuntime {
  override async *logs(
    _id: string,
    _query: LogQuery,
    signal: AbortSignal,
  ): AsyncIterable<Iterable<LogChunk>> {
    while (!signal.aborted) yield someLines();
  }
}

const position = { nanos: 1n, bytes: 1 };

function* someLines(): Iterable<LogChunk> {
  for (let count = 0; count < 1_000; count += 1) {
    for (const begun = performance.now(); performance.now() - begun < LINE_MS;);
    lines += 1;
    yield { source: 'stdout', ts: '2026-01-31T12:00:00.123456789Z', text: 'y\n', position };
  }
}

const directory = mkdtempSync(join(tmpdir(), 'sandkeep-flood-'));
let service: TestService;
let [noisy, quiet]: Client[] = [];
beforeAll(async () => {
  service = await startTestService({
    runtime: () => Promise.resolve(new FloodingRuntime(directory)),
  });
  [noisy, quiet] = [await service.newOrg(), await service.newOrg()];
});
afterAll(async () => {
  await service.close();
  rmSync(directory, { recursive: true });
});

test('readers of a flooding log leave the event loop to another organization', async () => {
  const { body } = await noisy!.post('/v1/sandboxes', smallRequest('flood'), {
    start: true,
    wait_for: 'running',
  });
  const leave = new AbortController();
  const reading = Array.from({ length: READERS }, async () => {
    const { response } = await openEvents(noisy!, `/v1/sandboxes/${body.id}/logs`, { signal: leave.signal });
    for await (const _ of response.body!);
  });
  for (const reader of reading) reader.catch(() => undefined);
  await until(
    async () => lines,
    (count) => count > 200,
  );
  let turns = 0;
  const counting = (async () => {
    for (; !leave.signal.aborted; turns += 1) await setImmediate();
  })();
  const before = lines;
  for (let request = 0; request < 5; request += 1) {
    expect((await quiet!.get('/v1/sandboxes')).status).toBe(200);
  }
  const perTurn = (lines - before) / turns;
  leave.abort();
  await Promise.allSettled([...reading, counting]);
  // A turn has a share of 1 ms, which a step of 0.5 ms may exceed.
  expect(perTurn).toBeLessThan(15);
  expect(turns).toBeGreaterThan(10);
});
