import { dominantShare, fits, subtract, sum, type Amounts } from './amounts.js';
import { closesWorker, holdsRoom } from './reservation-times.js';

export interface Candidate {
  id: string;
  capabilities: ReadonlySet<string>;
  capacity: Amounts;
  free: Amounts;
}

export interface WaitingRun {
  /** In order of admission. */
  runId: string;
  needs: Amounts;
  waitedMs: number;
  /** The sandbox needs a worker with all of these. */
  capabilities: readonly string[];
  /** The worker with the disk of the sandbox; null before the first placement. */
  pinnedTo: string | null;
}

/** The waiting runs of an organization in order of admission, and its use of the workers. */
export interface OrgQueue {
  orgId: string;
  weight: number;
  used: Readonly<Amounts>;
  /** The time of its latest start in milliseconds; 0: it has none. */
  lastStart: number;
  runs: readonly WaitingRun[];
}

export interface Assigned {
  /** The worker of each placed run. */
  placed: Map<string, string>;
  noRoom: string[];
  /** The room that the pass leaves on each worker. */
  free: ReadonlyMap<string, Amounts>;
}

interface Contender extends OrgQueue {
  runs: WaitingRun[];
  /** A run of this organization waits for these workers: its later runs do not get them. */
  reserved: Set<string>;
}

/** `share`: the weighted dominant share of the organization with its run. */
interface Reservation {
  contender: Contender;
  share: number;
}

/**
 * Assigns workers to waiting runs. Pure. The next run is the first one of the organization with the lowest weighted
 * dominant share of the capacity (DRF); of equal ones, of the organization that started longest ago. Runs of one
 * organization keep their order on each worker. A run without room reserves one worker. Organizations that would have a
 * larger share than its own do not get that worker while the reservation holds. The oldest run is first at times, and
 * then closes its worker to everybody. A run that fits no live worker, even an empty one, reserves nothing.
 */
export function assignRuns(workers: readonly Candidate[], queues: readonly OrgQueue[]): Assigned {
  const total = sum(workers.map(({ capacity }) => capacity));
  const free = new Map(workers.map(({ id, free: room }) => [id, room]));
  const holds = new Map<string, Reservation[]>(workers.map(({ id }) => [id, []]));
  const closed = new Map<string, Contender>();
  const placed = new Map<string, string>();
  const noRoom: string[] = [];

  function suitableFor({ pinnedTo, capabilities }: WaitingRun): readonly Candidate[] {
    return workers.filter(
      (worker) =>
        (pinnedTo === null || worker.id === pinnedTo) &&
        capabilities.every((capability) => worker.capabilities.has(capability)),
    );
  }

  const largeFor = (run: WaitingRun) => suitableFor(run).filter(({ capacity }) => fits(run.needs, capacity));

  function assign(contender: Contender, run: WaitingRun, closing: boolean): void {
    if (suitableFor(run).length === 0) return;
    const share = shareOf(contender, total, run.needs);
    const own = largeFor(run).filter(({ id }) => !contender.reserved.has(id));
    const chosen = mostFreeMemory(
      own.filter(
        ({ id }) =>
          fits(run.needs, free.get(id)!) &&
          (closed.get(id) ?? contender) === contender &&
          holds.get(id)!.every((hold) => hold.contender === contender || share <= hold.share),
      ),
    );
    if (chosen) {
      placed.set(run.runId, chosen.id);
      free.set(chosen.id, subtract(free.get(chosen.id)!, run.needs));
      contender.used = sum([contender.used, run.needs]);
      contender.lastStart = Infinity;
      return;
    }
    noRoom.push(run.runId);
    const [first] = own;
    if (!first) return;
    contender.reserved.add(first.id);
    if (closing) closed.set(first.id, contender);
    else if (holdsRoom(run.waitedMs)) holds.get(first.id)!.push({ contender, share });
  }

  /** By memory, because sandboxes share CPU time but not memory. */
  function mostFreeMemory(open: readonly Candidate[]): Candidate | undefined {
    const memory = ({ id }: Candidate) => free.get(id)!.memoryMib;
    return open.reduce<Candidate | undefined>(
      (best, worker) => (best && memory(best) >= memory(worker) ? best : worker),
      undefined,
    );
  }

  const contenders = queues.map((queue): Contender => {
    return { ...queue, runs: [...queue.runs], reserved: new Set() };
  });
  const oldest = contenders
    .flatMap((contender) => {
      const run = contender.runs.find((each) => largeFor(each).length > 0);
      return run ? [{ contender, run }] : [];
    })
    .reduce<{ contender: Contender; run: WaitingRun } | undefined>(
      (first, each) => (first && first.run.runId < each.run.runId ? first : each),
      undefined,
    );
  if (oldest && closesWorker(oldest.run.waitedMs)) {
    oldest.contender.runs.splice(oldest.contender.runs.indexOf(oldest.run), 1);
    assign(oldest.contender, oldest.run, true);
  }
  for (let contender; (contender = nextContender(contenders, total));)
    assign(contender, contender.runs.shift()!, false);
  return { placed, noRoom, free };
}

function shareOf({ used, weight }: Contender, total: Amounts, more?: Amounts): number {
  return dominantShare(more ? sum([used, more]) : used, total) / weight;
}

function nextContender(contenders: readonly Contender[], total: Amounts): Contender | undefined {
  let next: { contender: Contender; share: number } | undefined;
  for (const contender of contenders) {
    if (contender.runs.length === 0) continue;
    const share = shareOf(contender, total);
    const order = next && (share - next.share || compare(contender, next.contender));
    if (order === undefined || order < 0) next = { contender, share };
  }
  return next?.contender;
}

function compare(a: Contender, b: Contender): number {
  if (a.lastStart !== b.lastStart) return a.lastStart < b.lastStart ? -1 : 1;
  return a.runs[0]!.runId < b.runs[0]!.runId ? -1 : 1;
}
