import { microsOf, parseInstant, type Instant } from '../../lib/instant.js';
import type { Run } from '../../engine/runtime.js';
import { RUN_LABEL, SANDBOX_LABEL } from './container.js';

/** Longer names of sandboxes are cut: a listing of containers has other columns too. */
const LONGEST = 40;

/** A container is created for the run in its labels. */
export function nameOfNew({ name, sandboxId }: Run): string {
  // The end of an id is random; its beginning is a time, which sandboxes of one moment share.
  return `sandkeep-${name.slice(0, LONGEST)}-${sandboxId.slice(-8)}`;
}

/**
 * For a run other than that of the labels. A container can change its name, not its labels, so the name gets the run
 * and the start time before that run.
 */
export function nameOfNext(run: Run, startedAt: Instant | null): string {
  return `${nameOfNew(run)}.${run.runId.replaceAll('-', '')}.${baselineOf(startedAt)}`;
}

/** `baseline`: the start time before the run. */
export interface ContainerRun {
  sandboxId: string;
  runId: string;
  baseline: string;
}

const NEW = /^\/?sandkeep-.+-[0-9a-f]{8}$/;
const NEXT = /^\/?sandkeep-.+-[0-9a-f]{8}\.([0-9a-f]{32})\.([0-9a-z]+)$/;
/** The releases before 0.1.0 had both ids in the name, and no label of the run. */
const EARLIER = /^\/?sandkeep-([0-9a-f-]{36})-([0-9a-f-]{36})-([0-9a-z]+)$/;

/** Undefined: the container is not that of a sandbox. */
export function runOfContainer(
  name: string,
  { [SANDBOX_LABEL]: sandboxId, [RUN_LABEL]: firstRunId }: Readonly<Record<string, string>>,
): ContainerRun | undefined {
  const earlier = EARLIER.exec(name);
  if (earlier) return { sandboxId: earlier[1]!, runId: earlier[2]!, baseline: earlier[3]! };
  if (sandboxId === undefined || firstRunId === undefined) return undefined;
  const next = NEXT.exec(name);
  if (next) return { sandboxId, runId: uuidOf(next[1]!), baseline: next[2]! };
  return NEW.test(name) ? { sandboxId, runId: firstRunId, baseline: baselineOf(null) } : undefined;
}

/** The run has not started while the start time is still the one from before it. */
export function isBaseline(startedAt: Instant | null, baseline: string): boolean {
  return baselineOf(startedAt) === baseline;
}

function baselineOf(startedAt: Instant | null): string {
  return startedAt === null ? '0' : microsOf(startedAt).toString(36);
}

function uuidOf(digits: string): string {
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

export function parseEngineTime(text: string): Instant | null {
  return text.startsWith('0001-') ? null : (parseInstant(text) ?? null);
}
