import { micros, type Journal, type RecordedRun } from './engine-journal.js';
import type { Store, StoredEvent, StoredRun, StoredSandbox } from './store-snapshot.js';

/** Compares the store with the record of the engine, and both with themselves. Returns the faults. */
export function check(journal: Journal, store: Store): string[] {
  return [
    ...journal.wrong,
    ...checkRuns(journal, store),
    ...checkHeld(journal, store),
    ...checkHandovers(journal, store),
    ...checkEvents(store),
    ...checkPools(store),
  ];
}

/** The store has exactly the runs that the engine started, with the same times. */
function checkRuns(journal: Journal, store: Store): string[] {
  const wrong: string[] = [];
  const stored = new Map(store.runs.map((run) => [run.id, run]));
  for (const run of journal.runs.values()) {
    const row = stored.get(run.runId);
    const what = `run ${run.runId} of sandbox ${run.sandboxId}`;
    if (row?.sandbox_id !== run.sandboxId || row.org_id !== run.orgId) {
      wrong.push(`${what} was started and is not in the store`);
      continue;
    }
    const [startedAt, stoppedAt] = [timeOf(row.started_at), timeOf(row.stopped_at)];
    if (startedAt !== run.startedAt || stoppedAt !== run.stoppedAt) {
      wrong.push(
        `${what} ran [${run.startedAt}, ${run.stoppedAt}) and is stored as [${startedAt}, ${stoppedAt})`,
      );
    }
    if ((row.end_reason === null) !== (run.stoppedAt === null)) wrong.push(`${what}: ${row.end_reason}`);
  }
  for (const run of store.runs) {
    const what = `run ${run.id} of sandbox ${run.sandbox_id}`;
    if (run.started_at !== null && !journal.runs.has(run.id)) wrong.push(`${what} is stored and never ran`);
    if (run.end_reason === 'lost') wrong.push(`${what} is stored as lost`);
    const current = store.sandboxes.get(run.sandbox_id)?.run_id === run.id;
    if (run.end_reason === null && !current) wrong.push(`${what} is open and no longer the latest`);
  }
  for (const runs of bySandbox(journal.runs.values()).values()) {
    for (const [index, run] of runs.entries()) {
      const before = runs[index - 1];
      if (before && (before.stoppedAt === null || before.stoppedAt > run.startedAt)) {
        wrong.push(`runs ${before.runId} and ${run.runId} of sandbox ${run.sandboxId} overlap`);
      }
    }
  }
  return wrong;
}

/** The engine holds exactly the sandboxes of the store, and each sandbox shows the times of its latest run. */
function checkHeld(journal: Journal, store: Store): string[] {
  const wrong: string[] = [];
  for (const [id, { runId, running }] of journal.held) {
    const row = store.sandboxes.get(id);
    if (!row || row.destroyed) wrong.push(`sandbox ${id} is held, and ${row ? 'was destroyed' : 'unknown'}`);
    else if (running && (row.status !== 'running' || row.removed || row.run_id !== runId)) {
      wrong.push(`sandbox ${id} runs ${runId} and should be ${row.status} with ${row.run_id}`);
    }
  }
  const runsOf = bySandbox(journal.runs.values());
  for (const row of store.sandboxes.values()) {
    const held = journal.held.get(row.id);
    if (row.removed && !row.destroyed) wrong.push(`sandbox ${row.id} is removed and not destroyed`);
    if (row.status === 'running' && !row.removed && !held?.running)
      wrong.push(`sandbox ${row.id} does not run`);
    const latest = runsOf.get(row.id)?.at(-1);
    if (
      timeOf(row.started_at) !== (latest?.startedAt ?? null) ||
      timeOf(row.stopped_at) !== (latest?.stoppedAt ?? null)
    ) {
      wrong.push(
        `sandbox ${row.id} shows [${row.started_at}, ${row.stopped_at}), not the times of its latest run`,
      );
    }
  }
  return wrong;
}

/** A sandbox of a pool that runs has the command of its create, and the store notes none that the engine lacks. */
function checkHandovers(journal: Journal, { sandboxes, runs }: Store): string[] {
  return runs.flatMap(({ id, sandbox_id, handed_over, end_reason }) => {
    const sandbox = sandboxes.get(sandbox_id);
    const hasIt = journal.runs.get(id)?.hasHandover ?? false;
    const isGiven = sandbox?.takes != null && !sandbox.warm && !sandbox.removed;
    const lacks = isGiven && sandbox.status === 'running' && end_reason === null && !hasIt;
    return (handed_over && !hasIt) || lacks
      ? [`run ${id} of sandbox ${sandbox_id} lacks its command, and is noted with ${handed_over}`]
      : [];
  });
}

/** A pool has no more members than its size, and all of them unless it says why not. */
function checkPools({ pools, sandboxes }: Store): string[] {
  const all = [...sandboxes.values()];
  return pools.flatMap(({ id, name, size, most, last_failure_message: why }) => {
    const own = all.filter(({ pool_id, removed }) => pool_id === id && !removed);
    const members = own.filter(({ warm }) => warm).length;
    const running = own.filter(({ status }) => status === 'running').length;
    const isFull = members === size || why !== null || (most !== null && running >= most);
    return members > size || !isFull
      ? [`pool ${name} has ${members} of ${size} members, and ${running} of at most ${most} run: ${why}`]
      : [];
  });
}

const AT_REST = ['created', 'stopped', 'failed'];

/** Each change of a sandbox has one event, in a possible order, and the last event leads to the current status. */
function checkEvents(store: Store): string[] {
  const wrong: string[] = [];
  const eventsOf = groupBy(store.events, ({ resource_id }) => resource_id);
  const runs = new Map(store.runs.map((run) => [run.id, run]));
  for (const id of eventsOf.keys()) if (!store.sandboxes.has(id)) wrong.push(`events of no sandbox: ${id}`);
  for (const sandbox of store.sandboxes.values()) {
    const events = eventsOf.get(sandbox.id) ?? [];
    const trouble = replay(sandbox, events, runs);
    if (trouble) wrong.push(`sandbox ${sandbox.id}: ${trouble}\n  ${events.map(line).join('\n  ')}`);
  }
  for (const run of store.runs) {
    const events = (eventsOf.get(run.sandbox_id) ?? []).filter(({ payload }) => payload.run_id === run.id);
    const count = (...types: string[]) =>
      events.filter(({ event_type }) => types.includes(event_type)).length;
    const expected = [1, run.started_at === null ? 0 : 1, run.end_reason === null ? 0 : 1];
    const found = [
      count('sandbox_start_requested', 'pool_sandbox_added'),
      count('sandbox_started'),
      count('sandbox_stopped', 'sandbox_failed', 'sandbox_run_closed'),
    ];
    if (String(found) !== String(expected)) {
      wrong.push(
        `run ${run.id} of ${run.sandbox_id} has ${String(found)} events of start, run and end, not ${String(expected)}`,
      );
    }
  }
  return wrong;
}

function replay(
  sandbox: StoredSandbox,
  events: StoredEvent[],
  runs: ReadonlyMap<string, StoredRun>,
): string | undefined {
  let status: string | undefined;
  let runId: string | null = null;
  let removed = false;
  /** Whether a run is queued after the one that ends. */
  let followed = false;
  /** Whether the run has ended that another follows. One transaction writes both. */
  let due = false;
  /** No create has taken it from its pool. */
  let warm = false;
  for (const { event_type: type, org_id, payload } of events) {
    const refuse = () => `${type} of run ${payload.run_id} does not follow ${status} with run ${runId}`;
    const run = payload.run_id ? runs.get(payload.run_id) : undefined;
    if (due && type !== 'sandbox_start_requested') return refuse();
    if (org_id !== sandbox.org_id) return `${type} is of another`;
    if (type === 'pool_sandbox_added') {
      if (status !== undefined) return refuse();
      [status, runId, warm] = ['starting', payload.run_id ?? null, true];
      continue;
    }
    if (type === 'sandbox_created' && payload.source === 'warm') {
      if (!warm || status !== 'running' || payload.run_id !== runId) return refuse();
      warm = false;
      continue;
    }
    if (!warm && payload.name !== sandbox.name) return `${type} is of another`;
    if (status !== undefined && payload.previous_status !== status) return refuse();
    if (removed && type !== 'sandbox_started' && type !== 'sandbox_run_closed') return refuse();
    if (type !== 'sandbox_created' && type !== 'sandbox_start_requested' && payload.run_id !== runId)
      return refuse();
    switch (type) {
      case 'sandbox_created':
        if (status !== undefined) return refuse();
        status = 'created';
        break;
      case 'sandbox_start_requested':
        if (!status || !AT_REST.includes(status) || !payload.run_id || payload.run_id === runId)
          return refuse();
        runId = payload.run_id;
        status = 'starting';
        due = false;
        break;
      case 'sandbox_start_queued':
        if (status !== 'stopping' || followed) return refuse();
        followed = true;
        break;
      case 'sandbox_image_moved':
        break;
      case 'sandbox_start_waiting':
        if (status !== 'starting') return refuse();
        break;
      case 'sandbox_started':
        if (!sameTime(payload.started_at, run?.started_at)) return `${type} tells another time`;
        if (status === 'starting' && !removed) status = 'running';
        else if (status !== 'stopping' && !removed) return refuse();
        break;
      case 'sandbox_stop_requested':
        if (status !== 'starting' && status !== 'running' && !followed) return refuse();
        status = 'stopping';
        followed = payload.reason === 'restart';
        break;
      case 'sandbox_stopped':
      case 'sandbox_failed':
        if (!status || [...AT_REST].includes(status)) return refuse();
        if (!sameTime(payload.stopped_at, run?.stopped_at)) return `${type} tells another time`;
        status = type === 'sandbox_failed' ? 'failed' : 'stopped';
        due = followed;
        followed = false;
        break;
      case 'sandbox_run_closed':
        if (!removed) return refuse();
        if (!sameTime(payload.stopped_at, run?.stopped_at)) return `${type} tells another time`;
        break;
      case 'sandbox_destroyed':
      case 'sandbox_removed':
        if (removed || !status || (type === 'sandbox_removed' && !sandbox.ephemeral && !warm))
          return refuse();
        removed = true;
        followed = false;
        break;
      default:
        return `${type} was not expected`;
    }
  }
  if (warm !== sandbox.warm) return `is ${sandbox.warm ? '' : 'not '}in its pool`;
  if (due) return 'the run that was to follow did not begin';
  if (removed !== sandbox.removed) return `is ${sandbox.removed ? '' : 'not '}removed`;
  // The status of a removed sandbox follows from its run alone.
  if (!removed && status !== sandbox.status) return `is ${sandbox.status}, not ${status}`;
  return runId === sandbox.run_id ? undefined : `has run ${sandbox.run_id}, not ${runId}`;
}

function line({ event_type, payload }: StoredEvent): string {
  return `${event_type} run ${payload.run_id} ${payload.previous_status} -> ${payload.status}`;
}

function bySandbox(runs: Iterable<RecordedRun>): Map<string, RecordedRun[]> {
  return groupBy([...runs], ({ sandboxId }) => sandboxId);
}

/** Map.groupBy, which Node 20 lacks. */
function groupBy<Key, T>(list: readonly T[], keyOf: (item: T) => Key): Map<Key, T[]> {
  const groups = new Map<Key, T[]>();
  for (const item of list) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

function timeOf(text: string | null): bigint | null {
  return text === null ? null : micros(text);
}

function sameTime(shown: string | null | undefined, stored: string | null | undefined): boolean {
  return shown != null && stored != null
    ? micros(shown) === micros(stored)
    : (shown ?? null) === (stored ?? null);
}
