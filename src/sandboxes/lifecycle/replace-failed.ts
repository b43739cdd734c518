import type { Caller } from '../../access/caller.js';
import type { Context } from '../../context.js';
import type { EventSql } from '../../db/transaction.js';
import { everRan } from '../../runs/queries.js';
import { removeSandbox } from './destroy.js';
import { lockSandbox } from '../queries.js';

/**
 * Deletes the sandbox with this name when it failed before it ever ran: its image was missing, or the engine refused
 * it. It has no disk and no usage, and the official clients can neither replace nor see it after a failed create. A
 * sandbox that the key of the caller must not find keeps its name.
 */
export async function removeFailed(
  { now }: Pick<Context, 'now'>,
  tx: EventSql,
  { orgId, actor, access }: Pick<Caller, 'orgId' | 'actor' | 'access'>,
  name: string,
): Promise<void> {
  const sandbox = await lockSandbox(tx, orgId, { name, requiredLabels: access.labels });
  if (sandbox?.status !== 'failed' || !sandbox.run_spec || (await everRan(tx, orgId, sandbox.id))) return;
  // At once, not in the batch of the create: the statements of a batch do not see the freed name.
  // The failure may have been recorded while this transaction waited for the lock, and comes before the removal.
  await removeSandbox(tx, sandbox, 'replaced', actor, now());
}
