import type { Runtime } from '../../engine/runtime.js';
import { recordEvent } from '../../audit/events/record.js';
import type { EventActor } from '../../audit/events/schema.js';
import { announceChange } from '../../db/changes.js';
import type { EventTarget } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import type { Instant } from '../../lib/instant.js';
import { commandWithoutMemory } from '../reconcile/command-state.js';
import { updateSandboxRow, type LockedSandbox } from '../queries.js';
import type { SandboxRow } from '../row.js';

/** The reasons of runs (`stop_reason`) whose end keeps the memory. */
const PAUSE_REASONS = { requested: 'paused', idle_timeout: 'idle_paused' } as const;
export type PauseCause = keyof typeof PAUSE_REASONS;
const REASONS: ReadonlySet<string> = new Set(Object.values(PAUSE_REASONS));

export function pauseReason(cause: PauseCause): string {
  return PAUSE_REASONS[cause];
}

export function isPauseReason(stopReason: string | null | undefined): boolean {
  return stopReason != null && REASONS.has(stopReason);
}

export function isPaused({ status, paused_at }: Pick<SandboxRow, 'status' | 'paused_at'>): boolean {
  return status === 'stopped' && paused_at !== null;
}

export function refuseWithoutPauses({ name, capabilities }: Pick<Runtime, 'name' | 'capabilities'>): void {
  if (capabilities.has('pause')) return;
  throw new ApiError(
    'not_supported',
    `the ${name} runtime cannot save the memory of a sandbox: stop it, its disk stays; or use --runtime microvm`,
    { capability: 'pause' },
  );
}

/** Why the memory of a pause is no longer wanted, or no longer there. */
type DiscardReason = 'requested' | 'restart' | 'lost';

export async function recordDiscarded(
  target: EventTarget,
  { org_id: orgId, id, name, status, paused_at }: LockedSandbox,
  {
    actor,
    reason,
    at,
    after,
  }: { actor: EventActor; reason: DiscardReason; at: Instant; after: SandboxRow['status'] },
): Promise<void> {
  await recordEvent(target, {
    orgId,
    type: 'sandbox_memory_discarded',
    actor,
    resourceId: id,
    at,
    payload: { sandbox_id: id, name, previous_status: status, status: after, reason, paused_at },
  });
}

/** A stop of a paused sandbox: its memory is not kept. The transaction has locked the sandbox. */
export async function discardMemory(
  target: EventTarget,
  sandbox: LockedSandbox,
  actor: EventActor,
  at: Instant,
): Promise<SandboxRow> {
  const { org_id: orgId, id } = sandbox;
  await recordDiscarded(target, sandbox, { actor, reason: 'requested', at, after: 'stopped' });
  const change = {
    paused_at: null,
    stop_reason: 'requested',
    stop_message: 'a caller stopped it while it was paused',
    last_failure_message: null,
    command: commandWithoutMemory(sandbox),
  } as const;
  await updateSandboxRow(target, orgId, id, change, at);
  await announceChange(target, id);
  return { ...sandbox, ...change };
}
