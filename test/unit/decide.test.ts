import { describe, expect, test } from 'vitest';
import type { Holding } from '../../src/engine/runtime.js';
import { decide, type Step, type Wanted } from '../../src/sandboxes/reconcile/decide.js';
import { STATUSES } from '../../src/spec/statuses.js';

const EVICTED = { reason: 'evicted', message: 'its disk was full' } as const;

/**
 * Applies each decision to a model of store and runtime. Every combination of wanted and held state must settle, with
 * the run closed when nothing runs and no trace of removed sandboxes.
 */
describe('the reconciler', () => {
  test('records the end of a run whose start only the store has', () => {
    const holds = { ...holding('current', 'prepared'), failure: EVICTED };
    const wanted = {
      removed: false,
      runId: 'current',
      runOpen: true,
      placed: true,
      quiet: false,
      lacksParts: false,
      keepsMemory: false,
      paused: false,
    };
    expect(decide({ ...wanted, status: 'running', runStarted: true }, holds)).toBe('record_exit');
    expect(decide({ ...wanted, status: 'stopping', runStarted: true }, holds)).toBe('record_exit');
    expect(decide({ ...wanted, status: 'starting', runStarted: false }, holds)).toBe('start');
  });

  const held = (['none', 'prepared', 'starting', 'running', 'exited'] as const).flatMap((state) =>
    state === 'none'
      ? [undefined]
      : [
          holding('current', state),
          holding('older', state),
          { ...holding('current', state), keepsRecord: true },
          ...(state === 'exited' ? [{ ...holding('current', state), savedMib: 64 }] : []),
          ...(state === 'prepared' ? [{ ...holding('current', state), failure: EVICTED }] : []),
        ],
  );
  const run = { runId: 'current', runOpen: true, lacksParts: false, keepsMemory: false, paused: false };
  const settled = STATUSES.flatMap((status): Wanted[] =>
    [false, true].flatMap((removed): Wanted[] =>
      // A run is open exactly in these statuses. A run with a recorded start is never `starting`.
      status === 'created' || status === 'stopped' || status === 'failed'
        ? [
            {
              status,
              removed,
              runId: status === 'created' ? null : 'current',
              runStarted: false,
              runOpen: false,
              placed: status !== 'created',
              quiet: true,
              lacksParts: false,
              keepsMemory: false,
              paused: false,
            },
          ]
        : [
            { status, removed, ...run, runStarted: status === 'running', placed: true, quiet: false },
            ...(status === 'stopping'
              ? [{ status, removed, ...run, runStarted: true, placed: true, quiet: false }]
              : []),
            // A run without a worker has not started.
            ...(status === 'running'
              ? []
              : [{ status, removed, ...run, runStarted: false, placed: false, quiet: true }]),
          ],
    ),
  );

  const wants = settled.flatMap((wanted) => [
    wanted,
    { ...wanted, lacksParts: wanted.runOpen },
    ...(wanted.status === 'stopping' ? [{ ...wanted, keepsMemory: true }] : []),
    ...(wanted.status === 'stopped' && !wanted.removed ? [{ ...wanted, paused: true }] : []),
  ]);

  /** The runtime holds nothing of a run without a worker. */
  const possible = ({ placed }: Wanted, holds: Holding | undefined) => placed || holds?.runId !== 'current';
  const worlds = wants.flatMap((wanted) =>
    held.filter((holds) => possible(wanted, holds)).map((holds) => [wanted, holds] as const),
  );

  test.each(worlds)('settles from %j with %j', (first, firstHeld) => {
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
      if (['created', 'stopped', 'failed'].includes(wanted.status))
        expect(holds?.savedMib !== undefined).toBe(wanted.paused);
      if (wanted.status === 'running') expect(wanted.lacksParts).toBe(false);
    }
    const waits = wanted.status === 'starting' && !wanted.placed;
    expect(wanted.runOpen).toBe((wanted.status === 'running' || waits) && !wanted.removed);
  });

  interface World {
    wanted: Wanted;
    holds: Holding | undefined;
    destroyed: boolean;
  }

  /** Applies one decision to the model. */
  function after(step: Step, world: World): World {
    const { wanted, holds } = world;
    switch (step) {
      case 'nothing':
        // The engine goes on by itself.
        return holds?.state === 'starting' ? { ...world, holds: holding(holds.runId, 'running') } : world;
      case 'start':
        return { ...world, holds: holding('current', 'running') };
      case 'stop':
      case 'kill':
        return holds!.state === 'prepared' || holds!.state === 'starting'
          ? { ...world, holds: holding(holds!.runId, 'prepared'), wanted: { ...wanted, quiet: true } }
          : { ...world, holds: holding(holds!.runId, 'exited') };
      case 'pause':
        return { ...world, holds: { ...holding(holds!.runId, 'exited'), savedMib: 64 } };
      case 'discard_memory':
        return { ...world, holds: { ...holds!, savedMib: undefined } };
      case 'record_memory_lost':
        return { ...world, wanted: { ...wanted, status: 'failed', paused: false } };
      case 'drop_record':
        return { ...world, holds: { ...holds!, keepsRecord: false } };
      case 'destroy':
        return { ...world, holds: undefined };
      case 'record_started':
        return { ...world, wanted: { ...wanted, status: 'running', runStarted: true } };
      case 'hand_over':
        return { ...world, wanted: { ...wanted, lacksParts: false } };
      case 'record_destroyed':
        return { ...world, destroyed: true };
      case 'record_exit': {
        const paused = wanted.keepsMemory && holds?.savedMib !== undefined && !wanted.removed;
        return { ...world, wanted: { ...wanted, status: 'stopped', runOpen: false, paused } };
      }
      case 'record_cancelled':
      case 'record_lost':
        return { ...world, wanted: { ...wanted, status: 'stopped', runOpen: false } };
    }
  }

  function holding(runId: string, state: Holding['state']): Holding {
    return { orgId: 'o', sandboxId: 's', runId, state, startedAt: null, finishedAt: null, exit: null };
  }
});
