import { RECONCILER } from '../../audit/events/actor.js';
import { recordEvents } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChanges } from '../../db/changes.js';
import type { EventSql } from '../../db/transaction.js';
import { WriteBatch } from '../../db/write-batch.js';
import { commandAfterLook } from './command-state.js';
import type { FoundCommand } from './command-watch.js';
import { lockObserved, writeObserved, type ObservedSandbox } from './record-queries.js';

/** Writes the ends of commands whose runs continue, once each, with their audit events. */
export async function recordCommands(
  ctx: Pick<Context, 'now'>,
  tx: EventSql,
  found: readonly FoundCommand[],
): Promise<void> {
  const refs = found.map(({ row: { orgId, sandboxId } }) => ({ orgId, sandboxId }));
  const sandboxes = new Map((await lockObserved(tx, refs)).map((row) => [`${row.org_id}/${row.id}`, row]));
  const at = ctx.now();
  const changed = found.flatMap(({ row, state }): ObservedSandbox[] => {
    const sandbox = sandboxes.get(`${row.orgId}/${row.sandboxId}`);
    if (!sandbox || sandbox.removed_at !== null || sandbox.run_id !== row.wanted.runId) return [];
    if (sandbox.command?.status !== 'running' || sandbox.started_at === null) return [];
    const command = commandAfterLook(state, sandbox.started_at);
    if (!command) return [];
    // The time of a stopping sandbox is that of the request.
    return [{ ...sandbox, command, changed_at: sandbox.status === 'running' ? at : sandbox.changed_at }];
  });
  if (changed.length === 0) return;
  const batch = new WriteBatch(tx);
  await writeObserved(batch, changed);
  await recordEvents(
    batch,
    changed.flatMap(({ org_id: orgId, id, name, run_id, command }) =>
      command === null || command.status === 'unknown'
        ? []
        : [
            {
              orgId,
              type: 'sandbox_command_ended' as const,
              actor: RECONCILER,
              resourceId: id,
              at,
              payload: { sandbox_id: id, name, run_id, ...command },
            },
          ],
    ),
  );
  await announceChanges(
    batch,
    changed.map(({ id }) => id),
  );
  await batch.send();
}
