import { describe, expect, test } from 'vitest';
import type { Holding } from '../../src/runtimes/runtime.js';
import { decide, type Step, type Wanted } from '../../src/sandboxes/reconcile/decide.js';
import { STATUSES } from '../../src/sandboxes/spec/schema.js';

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
              quiet: true,
            },
          ]
        : [
            { status, removed, ...run, runStarted: status === 'running', placed: true, quiet: false },
            ...(status === 'stopping'
              ? [{ status, removed, ...run, runStarted: true, placed: true, quiet: false }]
              : []),
            // What has no place has not started either.
            ...(status === 'running'
              ? []
              : [{ status, removed, ...run, runStarted: false, placed: false, quiet: true }]),
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
        return holds!.state === 'prepared'
          ? { ...world, wanted: { ...wanted, quiet: true } }
          : { ...world, holds: holding(holds!.runId, 'exited') };
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
