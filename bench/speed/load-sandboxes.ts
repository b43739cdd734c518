import type { Client } from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { instantFromMicros, type Instant } from '../../src/lib/instant.js';
import { SPECIFICATION } from '../../src/spec/specification.js';
import { encodeSpec, SPEC_FORMAT } from '../../src/spec/text.js';
import { copyRows, type Cell } from './copy.js';
import { labelsOf, requestOf, RUNS_EACH } from './data-set.js';

/** The length of the history, in milliseconds. */
export const HISTORY_MS = 365 * 86_400_000;
const LONGEST_RUN_MS = 2 * 3_600_000;
const NO_VOLUMES = { named: new Map<string, string>(), host: undefined };
/** Sandboxes in one COPY, and so in the transition tables of the triggers. */
const BATCH = 5_000;

export interface LoadedSandbox {
  id: string;
  name: string;
  createdAt: number;
  /** The last run. */
  runId: string;
}

/**
 * Loads stopped sandboxes, evenly over the history until `until` (milliseconds); the newest is the first. The
 * triggers run as in the service.
 */
export async function loadSandboxes(
  client: Client,
  org: { id: string; slug: string },
  count: number,
  until: number,
  progress: (done: number) => void,
): Promise<LoadedSandbox[]> {
  const loaded = Array.from({ length: count }, (_, index): LoadedSandbox => {
    const createdAt = Math.floor(until - ((index + 1) / count) * HISTORY_MS);
    const [id, runId] = [uuidv7({ msecs: createdAt }), uuidv7({ msecs: createdAt })];
    return { id, name: `box-${String(index).padStart(6, '0')}`, createdAt, runId };
  });
  for (let from = 0; from < count; from += BATCH) {
    const batch = loaded.slice(from, from + BATCH);
    await copyRows(
      client,
      `sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, spec, spec_format, run_spec, runtime, run_id,
        started_at, stopped_at)`,
      sandboxRows(org, batch, from, count, until),
    );
    await copyRows(
      client,
      'sandbox_labels (org_id, key, value, created_at, sandbox_id)',
      labelRows(org.id, batch, from, count),
    );
    await copyRows(
      client,
      `runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)`,
      runRows(org.id, batch, until),
    );
    progress(batch.length);
  }
  return loaded;
}

function* sandboxRows(
  org: { id: string; slug: string },
  batch: readonly LoadedSandbox[],
  from: number,
  count: number,
  until: number,
): Generator<Cell[]> {
  for (const [index, { id, name, createdAt, runId }] of batch.entries()) {
    const { spec, runSpec } = SPECIFICATION.resolve(
      requestOf(name, labelsOf(from + index, count)),
      NO_VOLUMES,
    );
    const [started, stopped] = runTimes(createdAt, until, RUNS_EACH - 1);
    yield [
      org.id,
      id,
      name,
      `${org.slug}-${name}`,
      'stopped',
      false,
      at(createdAt),
      stopped,
      encodeSpec(spec),
      SPEC_FORMAT,
      JSON.stringify(runSpec),
      'simulated',
      runId,
      started,
      stopped,
    ];
  }
}

function* labelRows(
  orgId: string,
  batch: readonly LoadedSandbox[],
  from: number,
  count: number,
): Generator<Cell[]> {
  for (const [index, { id, createdAt }] of batch.entries()) {
    for (const [key, value] of Object.entries(labelsOf(from + index, count))) {
      yield [orgId, key, value, at(createdAt), id];
    }
  }
}

function* runRows(orgId: string, batch: readonly LoadedSandbox[], until: number): Generator<Cell[]> {
  for (const { id, createdAt, runId } of batch) {
    for (let number = 0; number < RUNS_EACH; number += 1) {
      const [started, stopped] = runTimes(createdAt, until, number);
      const own = number === RUNS_EACH - 1 ? runId : uuidv7({ msecs: createdAt });
      yield [orgId, own, id, 2, 2048, 0, started, stopped, 'exited'];
    }
  }
}

/** Runs in sequence between the creation and now. */
function runTimes(createdAt: number, until: number, number: number): [Instant, Instant] {
  const slot = (until - createdAt) / RUNS_EACH;
  const begin = Math.floor(createdAt + slot * (number + 0.1));
  return [at(begin), at(begin + Math.floor(Math.min(slot * 0.8, LONGEST_RUN_MS)))];
}

function at(millis: number): Instant {
  return instantFromMicros(BigInt(millis) * 1000n);
}
