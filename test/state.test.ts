import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SandboxStatus } from '../src/sandboxes/schema.js';
import { STATUSES } from '../src/sandboxes/schema.js';
import { OPERATIONS, TRANSITIONS } from '../src/sandboxes/state.js';
import { decide, type Step, type Wanted } from '../src/sandboxes/decide.js';
import type { Holding } from '../src/runtimes/runtime.js';
import type { Client } from './support/client.js';
import { startTestService, type TestService } from './support/service.js';
import { smallRequest } from './support/specs.js';
import { untilStatus } from './support/until.js';

/** Every cell of the lifecycle table, tried over HTTP. Slow starts and stops hold a sandbox in the statuses between. */
describe('the lifecycle table', () => {
  let quick: TestService;
  let slow: TestService;
  let clients: Record<'quick' | 'slow', Client>;
  beforeAll(async () => {
    quick = await startTestService({
      simulated: { failStart: ({ spec }) => (spec.image === 'fails' ? 'it fails' : undefined) },
    });
    slow = await startTestService({ simulated: { startMs: 60_000, stopMs: 60_000 } });
    clients = { quick: await quick.newOrg(), slow: await slow.newOrg() };
  });
  afterAll(() => Promise.all([quick.close(), slow.close()]));

  let count = 0;

  /** A fresh sandbox in this status, and whose client to ask. */
  async function sandboxIn(status: SandboxStatus): Promise<{ client: Client; id: string }> {
    const client = status === 'starting' ? clients.slow : clients.quick;
    const image = { type: 'oci', reference: status === 'failed' ? 'fails' : 'busybox' };
    const start = status === 'created' ? {} : { start: true };
    count += 1;
    const { body } = await client.post('/v1/sandboxes', smallRequest(`s-${count}`, { image }), start);
    if (status === 'stopped' || status === 'stopping') await untilStatus(client, body.id, 'running');
    if (status === 'stopped') await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    if (status === 'stopping') {
      // The simulated stop is instant: the row is held in the status between, as a slow runtime would.
      await quick.ctx.pool.query(
        "update sandboxes set status = 'stopping', runtime = 'elsewhere' where id = $1",
        [body.id],
      );
    }
    await untilStatus(client, body.id, status);
    return { client, id: body.id };
  }

  const cells = STATUSES.flatMap((status) => OPERATIONS.map((operation) => [status, operation] as const));

  test.each(cells)('%s: %s', async (status, operation) => {
    const outcome = TRANSITIONS[status][operation];
    const { client, id } = await sandboxIn(status);
    const path = `/v1/sandboxes/${id}`;
    const count = async () =>
      (await client.get('/v1/events', { resource_id: id, limit: 100 })).body.data.length;
    const before = await count();
    const answer =
      operation === 'destroy' ? await client.delete(path) : await client.post(`${path}/${operation}`, {});
    if (outcome === 'refused') {
      expect([answer.status, answer.body.error.code, answer.body.error.details]).toEqual([
        409,
        'invalid_state_transition',
        { status, operation },
      ]);
      expect((await client.get(path)).body.status).toBe(status);
      expect(await count()).toBe(before);
    } else if (outcome === 'gone') {
      expect(answer.status).toBe(200);
      expect((await client.get(path)).status).toBe(404);
      expect(await count()).toBeGreaterThan(before);
    } else {
      expect([answer.status, answer.body.status]).toEqual([200, outcome === 'same' ? status : outcome]);
      if (outcome === 'same') expect(await count()).toBe(before);
      else expect(await count()).toBeGreaterThan(before);
    }
  });
});

/**
 * The reconciler's decision, stepped by a toy world that does what is decided: from every combination of what the store
 * wants and what the runtime holds it must come to rest, with the run closed when nothing runs, and nothing left of what
 * was removed.
 */
describe('the reconciler', () => {
  const held = (['none', 'prepared', 'running', 'exited'] as const).flatMap((state) =>
    state === 'none' ? [undefined] : [holding('current', state), holding('older', state)],
  );
  const run = { runId: 'current', runOpen: true };
  const wants = STATUSES.flatMap((status): Wanted[] =>
    [false, true].flatMap((removed): Wanted[] =>
      // A run is open exactly while the status says so; one that is recorded as started may not be `starting` any more.
      status === 'created' || status === 'stopped' || status === 'failed'
        ? [
            {
              status,
              removed,
              runId: status === 'created' ? null : 'current',
              runStarted: false,
              runOpen: false,
              placed: status !== 'created',
            },
          ]
        : [
            { status, removed, ...run, runStarted: status === 'running', placed: true },
            ...(status === 'stopping' ? [{ status, removed, ...run, runStarted: true, placed: true }] : []),
            // What has no place has not started either.
            ...(status === 'running' ? [] : [{ status, removed, ...run, runStarted: false, placed: false }]),
          ],
    ),
  );

  /** Nothing is held of a run that has no place. */
  const possible = ({ placed }: Wanted, holds: Holding | undefined) => placed || holds?.runId !== 'current';
  const worlds = wants.flatMap((wanted) =>
    held.filter((holds) => possible(wanted, holds)).map((holds) => [wanted, holds] as const),
  );

  test.each(worlds)('comes to rest from %j with %j', (first, firstHeld) => {
    let world: World = { wanted: first, holds: firstHeld, destroyed: false };
    for (let steps = 0; steps < 10 && !world.destroyed; steps += 1) {
      world = after(decide(world.wanted, world.holds), world);
    }
    const { wanted, holds, destroyed } = world;
    if (wanted.removed) {
      expect([destroyed, holds]).toEqual([true, undefined]);
    } else {
      expect(decide(wanted, holds)).toBe('nothing');
      expect(holds?.state === 'running').toBe(wanted.status === 'running');
    }
    const waits = wanted.status === 'starting' && !wanted.placed;
    expect(wanted.runOpen).toBe((wanted.status === 'running' || waits) && !wanted.removed);
  });

  interface World {
    wanted: Wanted;
    holds: Holding | undefined;
    destroyed: boolean;
  }

  /** What the one thing decided does to the world. */
  function after(step: Step, world: World): World {
    const { wanted, holds } = world;
    switch (step) {
      case 'nothing':
        return world;
      case 'start':
        return { ...world, holds: holding('current', 'running') };
      case 'stop':
      case 'kill':
        return { ...world, holds: holding(holds!.runId, 'exited') };
      case 'destroy':
        return { ...world, holds: undefined };
      case 'record_started':
        return { ...world, wanted: { ...wanted, status: 'running', runStarted: true } };
      case 'record_destroyed':
        return { ...world, destroyed: true };
      case 'record_exit':
      case 'record_cancelled':
      case 'record_lost':
        return { ...world, wanted: { ...wanted, status: 'stopped', runOpen: false } };
    }
  }

  function holding(runId: string, state: Holding['state']): Holding {
    return { orgId: 'o', sandboxId: 's', runId, state, startedAt: null, finishedAt: null, exit: null };
  }
});
