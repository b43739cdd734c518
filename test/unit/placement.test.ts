import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { subtract, sum, type Amounts } from '../../src/sandboxes/placement/amounts.js';
import {
  assignRuns,
  type Candidate,
  type OrgQueue,
  type WaitingRun,
} from '../../src/sandboxes/placement/assign.js';
import {
  CLOSED_PART,
  closesWorker,
  FIRST_CLOSING_MS,
  holdsRoom,
} from '../../src/sandboxes/placement/reservation-times.js';

const MINUTE = 60_000;
/** A wait in which reservations hold, and one in which they give way. */
const HOLDS = 10_000;
const GIVES_WAY = 100_000;

const amounts = (vcpus: number, memoryMib: number, diskMib: number | null = null): Amounts => ({
  vcpus,
  memoryMib,
  diskMib,
});
const NOTHING = amounts(0, 0);

function worker(id: string, capacity: Amounts, free = capacity, capabilities: string[] = []): Candidate {
  return { id, capacity, free, capabilities: new Set(capabilities) };
}

function waiting(runId: string, needs: Amounts, rest: Partial<WaitingRun> = {}): WaitingRun {
  return { runId, needs, waitedMs: HOLDS, capabilities: [], pinnedTo: null, ...rest };
}

function queue(orgId: string, runs: readonly WaitingRun[], used = NOTHING, weight = 1): OrgQueue {
  return { orgId, weight, used, lastStart: 0, runs };
}

/** Places the queue of a single organization. */
function assign(workers: readonly Candidate[], runs: readonly WaitingRun[]) {
  const { placed, noRoom } = assignRuns(workers, [queue('a', runs)]);
  return { placed, short: new Set(noRoom) };
}

describe('the placement of one organization', () => {
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
    for (const waitedMs of [HOLDS, GIVES_WAY, FIRST_CLOSING_MS]) {
      const runs = [waiting('large', amounts(4, 100), { waitedMs }), waiting('small', amounts(1, 100))];
      expect(assign(one, runs)).toEqual({ placed: new Map(), short: new Set(['large', 'small']) });
      // Another worker continues to serve small starts.
      const two = [...one, worker('b', amounts(1, 4_000))];
      expect([...assign(two, runs).placed]).toEqual([['small', 'b']]);
    }
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
    const runs = [waiting('1', amounts(1, 1, 60)), waiting('2', amounts(1, 1, 60))];
    expect([...assign(workers, runs).placed.keys()]).toEqual(['1']);
    expect([...assign([worker('b', amounts(9, 9_000))], runs).placed.keys()]).toEqual(['1', '2']);
  });
});

describe('the placement of several organizations', () => {
  test('begins the first start of one before the hundredth of another', () => {
    const many = Array.from({ length: 100 }, (_, index) => waiting(`0${index}`.slice(-2), amounts(1, 1)));
    const { placed } = assignRuns(
      [worker('w', amounts(4, 4))],
      [queue('many', many), queue('one', [waiting('late', amounts(1, 1))])],
    );
    expect([...placed.keys()]).toEqual(['00', 'late', '01', '02']);
  });

  test('gives the next room to the organization that uses least, by its largest share', () => {
    const workers = [worker('w', amounts(10, 100), amounts(1, 20))];
    const run = (id: string) => waiting(id, amounts(1, 1));
    // 5 of 10 vCPUs are more than 40 of 100 MiB.
    const queues = [queue('cpu', [run('1')], amounts(5, 1)), queue('memory', [run('2')], amounts(1, 40))];
    expect([...assignRuns(workers, queues).placed.keys()]).toEqual(['2']);
    const recent = [queue('x', [run('1')]), queue('y', [run('2')])];
    recent[0]!.lastStart = 1;
    expect([...assignRuns(workers, recent).placed.keys()]).toEqual(['2']);
    const weighted = [{ ...queues[0]!, weight: 2 }, queues[1]!];
    expect([...assignRuns(workers, weighted).placed.keys()]).toEqual(['1']);
  });

  test('a start as large as the machine does not delay small ones of others', () => {
    const workers = [worker('w', amounts(100, 100), amounts(99, 99))];
    const small = [waiting('b1', amounts(1, 1)), waiting('b2', amounts(1, 1))];
    for (const waitedMs of [0, HOLDS, GIVES_WAY, FIRST_CLOSING_MS - 1]) {
      const large = waiting('a', amounts(100, 100), { waitedMs });
      const { placed, noRoom } = assignRuns(workers, [queue('a', [large]), queue('b', small)]);
      expect([[...placed.keys()], noRoom]).toEqual([['b1', 'b2'], ['a']]);
    }
  });

  test('a reservation holds room only against larger users, and only for a time', () => {
    const workers = [worker('w', amounts(10, 10), amounts(2, 2))];
    const offered = (waitedMs: number, used: number) => {
      const held = queue('held', [waiting('1', amounts(4, 4), { waitedMs })]);
      const other = queue('other', [waiting('2', amounts(1, 1))], amounts(used, used));
      return assignRuns(workers, [held, other]).placed.has('2');
    };
    expect([offered(HOLDS, 8), offered(HOLDS, 3)]).toEqual([false, true]);
    expect([offered(GIVES_WAY, 8), offered(GIVES_WAY, 3)]).toEqual([true, true]);
  });

  test('the oldest start of all closes one worker for a small part of its wait', () => {
    const workers = [
      worker('w', amounts(10, 10), amounts(9, 9)),
      worker('x', amounts(10, 10), amounts(0, 0)),
    ];
    const large = (id: string, waitedMs: number) => waiting(id, amounts(10, 10), { waitedMs });
    const small = queue('b', [waiting('9', amounts(1, 1))]);
    const placed = (waitedMs: number, own = small) =>
      assignRuns(workers, [queue('a', [large('1', waitedMs)]), own]).placed.has('9');
    expect(placed(FIRST_CLOSING_MS)).toBe(false);
    expect(placed(FIRST_CLOSING_MS * (1 + CLOSED_PART))).toBe(true);
    expect(placed(2 * FIRST_CLOSING_MS)).toBe(false);
    // The other worker stays open.
    expect(
      placed(FIRST_CLOSING_MS, { ...small, runs: [waiting('9', amounts(1, 1), { pinnedTo: 'x' })] }),
    ).toBe(false);
    const open = [workers[0]!, worker('x', amounts(10, 10), amounts(1, 1))];
    expect(assignRuns(open, [queue('a', [large('1', FIRST_CLOSING_MS)]), small]).placed.get('9')).toBe('x');
    // Only the oldest start closes a worker.
    const younger = queue('c', [large('2', FIRST_CLOSING_MS)]);
    const closed = assignRuns(workers, [queue('a', [large('1', FIRST_CLOSING_MS * 1.5)]), younger, small]);
    expect(closed.placed.has('9')).toBe(true);
  });
});

test('a reservation holds for at most 90 seconds, or half of the time that it has waited', () => {
  for (let start = 0, at = 0; at < 24 * 60 * MINUTE; at += MINUTE / 4) {
    if (!holdsRoom(at)) start = at + MINUTE / 4;
    else expect(at - start).toBeLessThan(Math.max(1.5 * MINUTE, start / 2));
  }
});

test('the closed time of a worker is at most a thirty-second of the wait', () => {
  const step = 1_000;
  let closed = 0;
  let most = 0;
  for (let at = 0; at < 48 * 60 * MINUTE; at += step) {
    if (closesWorker(at)) closed += step;
    most = Math.max(most, (closed - step) / (at + 1));
  }
  expect(most).toBeLessThanOrEqual(2 * CLOSED_PART);
  expect(most).toBeGreaterThan(CLOSED_PART);
});

// A model in virtual time, with sums of its own.

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

interface ModelRun {
  runId: string;
  orgId: string;
  needs: Amounts;
  arrives: number;
  lasts: number;
}
const runName = (index: number) => `r${String(index).padStart(6, '0')}`;
const someRuns = fc
  .array(
    fc.record({
      org: fc.integer({ min: 0, max: 3 }),
      needs: someAmounts,
      lasts: fc.integer({ min: 1, max: 5 }),
      gap: fc.integer({ min: 0, max: 2 }),
    }),
    { maxLength: 40 },
  )
  .map((list) => {
    let arrives = 0;
    return list.map(({ org, needs, lasts, gap }, index): ModelRun => {
      arrives += gap;
      return { runId: runName(index), orgId: `org${org}`, needs, lasts, arrives };
    });
  });

const within = (needs: Amounts, room: Amounts) =>
  needs.vcpus <= room.vcpus &&
  needs.memoryMib <= room.memoryMib &&
  (room.diskMib === null || (needs.diskMib ?? 0) <= room.diskMib);

class Model {
  step = 0;
  queued: ModelRun[] = [];
  running: (ModelRun & { workerId: string; ends: number })[] = [];
  readonly started: ModelRun[] = [];
  private readonly lastStarts = new Map<string, number>();

  constructor(
    readonly workers: readonly Candidate[],
    private readonly stepMs: number,
    private readonly waited?: number,
  ) {}

  free(workerId: string): Amounts {
    const on = this.running.filter((run) => run.workerId === workerId);
    const { capacity } = this.workers.find(({ id }) => id === workerId)!;
    return on.reduce((room, { needs }) => subtract(room, needs), capacity);
  }

  queues(): OrgQueue[] {
    return [...new Set(this.queued.map(({ orgId }) => orgId))].map((orgId) => ({
      orgId,
      weight: 1,
      lastStart: this.lastStarts.get(orgId) ?? 0,
      used: sum(this.running.filter((run) => run.orgId === orgId).map(({ needs }) => needs)),
      runs: this.queued
        .filter((run) => run.orgId === orgId)
        .map((run) =>
          waiting(run.runId, run.needs, { waitedMs: this.waited ?? (this.step - run.arrives) * this.stepMs }),
        ),
    }));
  }

  /**
   * One placement. Checks that it gives no more than there is, and that its result does not depend on the order of the
   * queues.
   */
  pass(): Map<string, string> {
    const candidates = this.workers.map((each) => ({ ...each, free: this.free(each.id) }));
    const queues = this.queues();
    const { placed, noRoom } = assignRuns(candidates, queues);
    expect(assignRuns(candidates, queues.toReversed()).placed).toEqual(placed);
    expect(placed.size + noRoom.length).toBe(this.queued.length);
    for (const runId of placed.keys()) {
      const run = this.queued.find((each) => each.runId === runId)!;
      this.started.push(run);
      this.lastStarts.set(run.orgId, this.step + 1);
      this.running.push({ ...run, workerId: placed.get(runId)!, ends: this.step + run.lasts });
    }
    this.queued = this.queued.filter(({ runId }) => !placed.has(runId));
    for (const { id } of this.workers) {
      const { vcpus, memoryMib, diskMib } = this.free(id);
      expect(Math.min(vcpus, memoryMib, diskMib ?? 0)).toBeGreaterThanOrEqual(0);
    }
    return placed;
  }

  advance(): void {
    this.step += 1;
    this.running = this.running.filter(({ ends }) => ends > this.step);
  }
}

test('never exceeds capacity, starves no possible start, and keeps the order of an organization on one worker', () => {
  fc.assert(
    fc.property(someWorkers, someRuns, fc.constantFrom(100, 5_000, MINUTE), (workers, all, stepMs) => {
      const model = new Model(workers, stepMs);
      const possible = ({ needs }: ModelRun) => workers.some(({ capacity }) => within(needs, capacity));
      while (model.step < 300) {
        model.queued.push(...all.filter(({ arrives }) => arrives === model.step));
        model.pass();
        model.advance();
      }
      expect(model.queued.filter(possible)).toEqual([]);
      if (workers.length > 1) return;
      for (const org of new Set(all.map(({ orgId }) => orgId))) {
        const of = (runs: readonly ModelRun[]) =>
          runs.filter(({ orgId }) => orgId === org).map(({ runId }) => runId);
        expect(of(model.started)).toEqual(of(all.filter(possible)));
      }
    }),
    { numRuns: 60 },
  );
});

test('leaves no room unused that the first start of an organization fits into, unless it is held', () => {
  fc.assert(
    fc.property(someWorkers, someRuns, (workers, all) => {
      const model = new Model(workers, 1, GIVES_WAY);
      model.queued.push(...all);
      let unused = 0;
      for (; model.step < 20; model.advance()) {
        model.pass();
        for (const { runs } of model.queues()) {
          const first = runs.find(({ needs }) => workers.some(({ capacity }) => within(needs, capacity)));
          if (first) unused += workers.filter(({ id }) => within(first.needs, model.free(id))).length;
        }
      }
      expect(unused).toBe(0);
    }),
    { numRuns: 60 },
  );
});

test('the first start of an organization overtakes every queued start of the same size of another', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 6 }),
      fc.integer({ min: 1, max: 60 }),
      fc.integer({ min: 1, max: 20 }),
      (places, backlog, arrives) => {
        const model = new Model([worker('w', amounts(places, places))], 1_000);
        const run = (index: number, orgId: string) => {
          const lasts = 1 + (index % 7);
          return { runId: runName(index), orgId, needs: amounts(1, 1), arrives: model.step, lasts };
        };
        model.queued.push(...Array.from({ length: backlog }, (_, index) => run(index, 'a')));
        for (; model.step < arrives; model.advance()) model.pass();
        model.queued.push(run(backlog, 'b'));
        for (;;) {
          const placed = model.pass();
          if (placed.has(runName(backlog))) break;
          expect([...placed.keys()]).toEqual([]);
          model.advance();
        }
      },
    ),
    { numRuns: 60 },
  );
});

/** Each organization but one starts another run as soon as one ends. */
test('a start as large as the machine begins beside an endless supply of short ones', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 4 }), (others, longest) => {
      const stepMs = 15_000;
      const model = new Model([worker('w', amounts(6, 6))], stepMs);
      const large = { runId: runName(0), orgId: 'large', needs: amounts(6, 6), arrives: 1, lasts: 1 };
      let count = 1;
      const bound = 128 * (longest + 2);
      let refused = 0;
      for (; model.step <= bound; model.advance()) {
        for (let org = 0; org < others; org += 1) {
          const orgId = `org${org}`;
          while (model.queued.filter((run) => run.orgId === orgId).length < 6) {
            const lasts = 1 + (count % longest);
            model.queued.push({
              runId: runName(count),
              orgId,
              needs: amounts(1, 1),
              arrives: model.step,
              lasts,
            });
            count += 1;
          }
        }
        if (model.step === 1) model.queued.unshift(large);
        const placed = model.pass();
        if (placed.has(large.runId)) break;
        if (placed.size === 0) refused += 1;
      }
      expect(model.started).toContain(large);
      // Meanwhile the others have had their turns.
      expect(refused).toBeLessThanOrEqual(bound / 32 + longest * 8);
    }),
    { numRuns: 12 },
  );
});
