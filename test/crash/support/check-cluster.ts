import type { V1Pod } from '@kubernetes/client-node';
import { micros } from './engine-journal.js';
import type { NodeRun } from './node-journal.js';

export interface StoredSandbox {
  id: string;
  status: string;
  status_reason: string | null;
  removed: boolean;
  destroyed: boolean;
  run_id: string | null;
  runs: {
    id: string;
    started_at: string | null;
    stopped_at: string | null;
    /** The last sign of life. */
    seen_at: string | null;
    end_reason: string | null;
  }[];
}

export interface ClusterRecord {
  pods: V1Pod[];
  /** The names of other objects that belong to sandboxes, and their sandboxes. */
  others: { name: string; sandboxId: string | undefined }[];
  /** By run, from the engines of the nodes. */
  runs: ReadonlyMap<string, NodeRun>;
  /** The nodes that the cluster has lost. */
  lost: ReadonlySet<string>;
}

/** The answers that the service gave. */
export interface Acknowledged {
  created: ReadonlySet<string>;
  deleted: ReadonlySet<string>;
}

const SECOND = 1_000_000n;
/** A cluster records whole seconds, and a start counts from the end of its second. */
const PRECISION = 2n * SECOND;

/** Compares the store with the cluster and, with `readsNodes`, with the engines of its nodes. Returns the faults. */
export function checkCluster(
  store: readonly StoredSandbox[],
  record: ClusterRecord,
  acknowledged: Acknowledged,
  readsNodes: boolean,
): string[] {
  const sandboxes = new Map(store.map((row) => [row.id, row]));
  return [
    ...checkAcknowledged(sandboxes, acknowledged),
    ...store.flatMap(checkRest),
    ...checkObjects(sandboxes, record),
    ...(readsNodes ? checkRuns(store, record) : []),
  ];
}

function checkAcknowledged(
  sandboxes: ReadonlyMap<string, StoredSandbox>,
  { created, deleted }: Acknowledged,
): string[] {
  const lost = [...created]
    .filter((id) => !sandboxes.has(id))
    .map((id) => `the created sandbox ${id} is lost`);
  const kept = [...deleted].filter((id) => sandboxes.get(id)?.removed !== true);
  return [...lost, ...kept.map((id) => `the deleted sandbox ${id} is there`)];
}

function checkRest({ id, status, status_reason, removed, destroyed }: StoredSandbox): string[] {
  if (removed !== destroyed) return [`sandbox ${id} is removed and not destroyed`];
  const waits = status === 'starting' && status_reason === 'insufficient_capacity';
  if (removed || waits || !['starting', 'stopping'].includes(status)) return [];
  return [`sandbox ${id} is ${status}`];
}

function checkObjects(
  sandboxes: ReadonlyMap<string, StoredSandbox>,
  { pods, others, lost }: ClusterRecord,
): string[] {
  const wrong: string[] = [];
  const live = new Set<string>();
  for (const { metadata, spec, status } of pods) {
    const { 'sandkeep.dev/sandbox': sandboxId = '', 'sandkeep.dev/run': runId = '' } = metadata?.labels ?? {};
    const row = sandboxes.get(sandboxId);
    if (!row || row.destroyed) wrong.push(`the Pod ${metadata?.name} of sandbox ${sandboxId} is left over`);
    if (!row || lost.has(spec?.nodeName ?? '')) continue;
    const runs = status?.containerStatuses?.[0]?.state?.running !== undefined;
    const isLatest = row.run_id === runId;
    if (runs !== (row.status === 'running' && isLatest)) {
      wrong.push(
        `sandbox ${row.id} is ${row.status}, and the container of run ${runId} ${runs ? 'runs' : 'does not'}`,
      );
    }
    const isOpen = row.runs.some(({ id, end_reason }) => id === runId && end_reason === null);
    if (!isOpen && (metadata?.finalizers ?? []).length > 0)
      wrong.push(`the ended run ${runId} keeps its Pod`);
    if (live.has(sandboxId)) wrong.push(`sandbox ${sandboxId} has several Pods`);
    live.add(sandboxId);
  }
  for (const { id, status, removed } of sandboxes.values()) {
    if (status === 'running' && !removed && !live.has(id))
      wrong.push(`sandbox ${id} is running and has no Pod`);
  }
  for (const { name, sandboxId } of others) {
    if (!live.has(sandboxId ?? '')) wrong.push(`${name} of sandbox ${sandboxId} is left over`);
  }
  return wrong;
}

function checkRuns(store: readonly StoredSandbox[], { runs }: ClusterRecord): string[] {
  const wrong: string[] = [];
  const stored = new Map(store.flatMap((row) => row.runs.map((run) => [run.id, run] as const)));
  for (const [id, run] of runs) {
    const row = stored.get(id);
    if (run.starts > 1) wrong.push(`run ${id} was started ${run.starts} times`);
    if (!row) wrong.push(`run ${id} ran and is not in the store`);
  }
  for (const [id, row] of stored) {
    if (row.end_reason === 'lost') wrong.push(`run ${id} is lost: ${JSON.stringify(row)}`);
    if (row.started_at === null) continue;
    const run = runs.get(id);
    if (!run) {
      wrong.push(`run ${id} is stored as started, and no node ran it`);
      continue;
    }
    const startedAt = micros(row.started_at);
    if (startedAt < run.startedAt || startedAt > run.startedAt + PRECISION) {
      wrong.push(`run ${id} started at ${run.startedAt} and is stored as ${row.started_at}`);
    }
    if (row.stopped_at === null) {
      if (run.endedAt !== null) wrong.push(`run ${id} has ended, and is stored as running`);
      continue;
    }
    const stoppedAt = micros(row.stopped_at);
    if (stoppedAt < startedAt) wrong.push(`run ${id} ended before it started`);
    // A run of less than a second has no length.
    const isBilled = stoppedAt > startedAt;
    if (isBilled && run.endedAt !== null && stoppedAt > run.endedAt) {
      wrong.push(`run ${id} ended at ${run.endedAt} and is billed until ${row.stopped_at}`);
    }
    // The cluster has forgotten the end when a node removed the container while the API server was away.
    const isLastSeen = row.end_reason === 'node_lost' || row.stopped_at === row.seen_at;
    if (run.endedAt !== null && !isLastSeen && stoppedAt < run.endedAt - PRECISION) {
      wrong.push(`run ${id} ended at ${run.endedAt} and is stored as ${row.stopped_at}`);
    }
  }
  return wrong;
}
