import { microsOf, parseInstant, type Instant } from '../../lib/instant.js';
import type { Run } from '../runtime.js';

/** A container can change its name, not its labels: the name has the latest run and the start time before that run. */
export function containerName({ sandboxId, runId }: Run, startedAt: Instant | null): string {
  return `sandkeep-${sandboxId}-${runId}-${baselineOf(startedAt)}`;
}

export function parseContainerName(
  name: string,
): { sandboxId: string; runId: string; baseline: string } | undefined {
  const match = /^\/?sandkeep-([0-9a-f-]{36})-([0-9a-f-]{36})-([0-9a-z]+)$/.exec(name);
  return match ? { sandboxId: match[1]!, runId: match[2]!, baseline: match[3]! } : undefined;
}

/** The run in the name has not started while the start time is still the one from before it. */
export function isBaseline(startedAt: Instant | null, baseline: string): boolean {
  return baselineOf(startedAt) === baseline;
}

function baselineOf(startedAt: Instant | null): string {
  return startedAt === null ? '0' : microsOf(startedAt).toString(36);
}

export function parseEngineTime(text: string): Instant | null {
  return text.startsWith('0001-') ? null : (parseInstant(text) ?? null);
}
