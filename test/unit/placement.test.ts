import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  Assignment,
  type Amounts,
  type Candidate,
  type WaitingRun,
} from '../../src/sandboxes/placement/assign.js';

const amounts = (vcpus: number, memoryMib: number, diskMib: number | null = null): Amounts => ({
  vcpus,
  memoryMib,
  diskMib,
});

function worker(id: string, capacity: Amounts, free = capacity, capabilities: string[] = []): Candidate {
  return { id, capacity, free, capabilities: new Set(capabilities) };
}

function waiting(runId: string, needs: Amounts, rest: Partial<WaitingRun> = {}): WaitingRun {
  return { runId, needs, capabilities: [], pinnedTo: null, ...rest };
}

/** Places a complete queue. */
function assign(workers: readonly Candidate[], queue: readonly WaitingRun[]) {
  const assignment = new Assignment(workers);
  const placed = new Map<string, string>();
  const short = new Set<string>();
  for (const waiting of queue) {
    const over = assignment.exhausted;
    const place = assignment.assign(waiting);
    if (place === 'no_room') short.add(waiting.runId);
    else if (place !== 'no_worker') {
      placed.set(waiting.runId, place.workerId);
      expect(over).toBe(false);
    }
  }
  return { placed, short };
}

describe('a placement', () => {
  test('chooses the worker with the most free memory', () => {
    const { placed } = assign(
      [worker('a', amounts(4, 4_000), amounts(4, 1_000)), worker('b', amounts(4, 4_000), amounts(1, 2_000))],
      [waiting('1', amounts(1, 500)), waiting('2', amounts(1, 500))],
    );
    expect([...placed]).toEqual([
      ['1', 'b'],
      ['2', 'a'],
    ]);
  });

  test('chooses the worker with the disk that can enforce every setting', () => {
    const workers = [
      worker('a', amounts(4, 4_000)),
      worker('b', amounts(4, 1_000), undefined, ['tmpfs', 'bind_mounts']),
    ];
    const { placed, short } = assign(workers, [
      waiting('pinned', amounts(1, 10), { pinnedTo: 'b' }),
      waiting('demanding', amounts(1, 10), { capabilities: ['tmpfs'] }),
      waiting('nowhere', amounts(1, 10), { capabilities: ['secrets'] }),
      waiting('away', amounts(1, 10), { pinnedTo: 'gone' }),
    ]);
    expect([...placed]).toEqual([
      ['pinned', 'b'],
      ['demanding', 'b'],
    ]);
    // These lack no capacity: the worker that could run them is away.
    expect([...short]).toEqual([]);
  });

  test('reserves room for a large start, and gives it to no later smaller one', () => {
    const one = [worker('a', amounts(4, 4_000), amounts(2, 2_000))];
    const queue = [waiting('large', amounts(4, 100)), waiting('small', amounts(1, 100))];
    expect(assign(one, queue)).toEqual({ placed: new Map(), short: new Set(['large', 'small']) });
    // Another worker continues to serve small starts.
    const two = [...one, worker('b', amounts(1, 4_000))];
    expect([...assign(two, queue).placed]).toEqual([['small', 'b']]);
  });

  test('is not blocked by a start too large for every worker', () => {
    const { placed, short } = assign(
      [worker('a', amounts(2, 2_000))],
      [waiting('giant', amounts(64, 100)), waiting('small', amounts(1, 100))],
    );
    expect([[...placed.keys()], [...short]]).toEqual([['small'], ['giant']]);
  });

  test('counts disk where the worker does', () => {
    const workers = [worker('a', amounts(9, 9_000, 100))];
    const queue = [waiting('1', amounts(1, 1, 60)), waiting('2', amounts(1, 1, 60))];
    expect([...assign(workers, queue).placed.keys()]).toEqual(['1']);
    expect([...assign([worker('b', amounts(9, 9_000))], queue).placed.keys()]).toEqual(['1', '2']);
  });
});

const someAmounts = fc.record({
  vcpus: fc.integer({ min: 1, max: 8 }),
  memoryMib: fc.integer({ min: 1, max: 8 }),
  diskMib: fc.integer({ min: 0, max: 8 }),
});
const someWorkers = fc
  .array(fc.record({ capacity: someAmounts, counted: fc.boolean() }), { minLength: 1, maxLength: 4 })
  .map((list) =>
    list.map(({ capacity, counted }, index) =>
      worker(`w${index}`, counted ? capacity : { ...capacity, diskMib: null }),
    ),
  );
const someQueue = fc
  .array(fc.record({ needs: someAmounts, lasts: fc.integer({ min: 1, max: 5 }) }), { maxLength: 25 })
  .map((list) => list.map(({ needs, lasts }, index) => ({ ...waiting(`r${index}`, needs), lasts })));

/** The starts in `placed` that fit a capacity, added up by hand. */
function load(all: readonly { needs: Amounts }[]): Amounts {
  const sum = (of: (needs: Amounts) => number) => all.reduce((total, { needs }) => total + of(needs), 0);
  return amounts(
    sum((needs) => needs.vcpus),
    sum((needs) => needs.memoryMib),
    sum((needs) => needs.diskMib ?? 0),
  );
}

test("never exceeds a worker's capacity, starves no possible start, and keeps the order on one worker", () => {
  fc.assert(
    fc.property(someWorkers, someQueue, (workers, all) => {
      let queue = all;
      let running: { needs: Amounts; runId: string; workerId: string; left: number }[] = [];
      const possible = ({ needs }: WaitingRun) =>
        workers.some(
          ({ capacity }) =>
            needs.vcpus <= capacity.vcpus &&
            needs.memoryMib <= capacity.memoryMib &&
            (capacity.diskMib === null || needs.diskMib! <= capacity.diskMib),
        );
      const started: string[] = [];
      for (let step = 0; step < 200 && queue.some(possible); step += 1) {
        const candidates = workers.map((one) => {
          const used = load(running.filter(({ workerId }) => workerId === one.id));
          const { vcpus, memoryMib, diskMib } = one.capacity;
          const free = amounts(
            vcpus - used.vcpus,
            memoryMib - used.memoryMib,
            diskMib === null ? null : diskMib - used.diskMib!,
          );
          return { ...one, free };
        });
        const { placed, short } = assign(candidates, queue);
        for (const run of queue) {
          const workerId = placed.get(run.runId);
          if (workerId === undefined) expect(short.has(run.runId)).toBe(true);
          else running.push({ ...run, workerId, left: run.lasts });
        }
        started.push(...placed.keys());
        for (const { id, capacity } of workers) {
          const used = load(running.filter(({ workerId }) => workerId === id));
          expect(used.vcpus).toBeLessThanOrEqual(capacity.vcpus);
          expect(used.memoryMib).toBeLessThanOrEqual(capacity.memoryMib);
          if (capacity.diskMib !== null) expect(used.diskMib).toBeLessThanOrEqual(capacity.diskMib);
        }
        queue = queue.filter(({ runId }) => !placed.has(runId));
        running = running.map((run) => ({ ...run, left: run.left - 1 })).filter(({ left }) => left > 0);
      }
      expect(queue.filter(possible)).toEqual([]);
      if (workers.length === 1) {
        expect(started).toEqual(all.filter(possible).map(({ runId }) => runId));
      }
    }),
    { numRuns: 300 },
  );
});

/** Without the reservation an endless stream of small starts would overtake the large one forever. */
test('a large start is placed even in an endless stream of small ones', () => {
  const capacity = amounts(4, 4);
  let running = [{ needs: amounts(1, 1), left: 2 }];
  let queue: WaitingRun[] = [waiting('large', amounts(4, 4))];
  for (let step = 0; ; step += 1) {
    expect(step).toBeLessThan(10);
    queue.push(waiting(`small-${step}`, amounts(1, 1)));
    const used = load(running);
    const free = amounts(4 - used.vcpus, 4 - used.memoryMib);
    const { placed } = assign([worker('w', capacity, free)], queue);
    if (placed.has('large')) break;
    running.push(...queue.filter(({ runId }) => placed.has(runId)).map(({ needs }) => ({ needs, left: 2 })));
    queue = queue.filter(({ runId }) => !placed.has(runId));
    running = running.map((run) => ({ ...run, left: run.left - 1 })).filter(({ left }) => left > 0);
  }
});
