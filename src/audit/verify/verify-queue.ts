import type { Transaction } from '../../db/transaction.js';
import { shortInstant } from '../../lib/instant.js';
import type { EventKeys } from '../events/event-keys.js';
import { leafOf } from '../events/hash-chain.js';
import { unknownKeyIds } from '../log/key-queries.js';
import { readUnsealed, type QueueRange, type UnsealedEvent } from '../log/unsealed-queries.js';
import { VerificationFault } from './verification-fault.js';
import { findLateEvent, findLostEvent, findMisplacedEvent } from './verify-queries.js';

const BATCH = 500;

interface QueueTrust {
  keys: EventKeys | undefined;
  accepted: ReadonlySet<string> | undefined;
}

/** `marked`: the log has marked entries, so unmarked events in the queue are forged. Throws VerificationFault. */
export async function verifyQueue(
  tx: Transaction,
  orgId: string,
  marked: boolean,
  { keys, accepted }: QueueTrust,
): Promise<void> {
  await refuseMisplaced(tx, orgId);
  await refuseLost(tx, orgId);
  // Marks of unknown keys cannot be verified. Keys are registered before their first mark.
  const trusted = keys && (await unknownKeyIds(tx, keys.known)).length === 0 ? keys : undefined;
  let marksRequired = marked;
  let range: QueueRange | undefined;
  do {
    const { events, left } = await readUnsealed(tx, orgId, range, { limit: BATCH, whole: true });
    for (const event of events) {
      const isMarked = verifyEvent(event, trusted);
      if (isMarked) marksRequired = true;
      if (!trusted || isMarked || !marksRequired || accepted?.has(event.id)) continue;
      throw new VerificationFault(
        `the unsealed ${describe(event)} was inserted: it has no mark of the event keys`,
      );
    }
    range = left;
  } while (range);
}

/** Returns whether the event has a valid mark. Throws VerificationFault. */
function verifyEvent(event: UnsealedEvent, keys: EventKeys | undefined): boolean {
  const leaf = leafOf(event);
  if (event.leaf && !leaf.equals(event.leaf)) {
    throw new VerificationFault(
      `the unsealed ${describe(event)} was changed: its content does not have the recorded hash`,
    );
  }
  return event.mark !== null && keys !== undefined && keys.isMarked(leaf, event.mark);
}

function describe({ id, occurred_at }: UnsealedEvent): string {
  return `event ${id} of ${shortInstant(occurred_at)}`;
}

async function refuseMisplaced(tx: Transaction, orgId: string): Promise<void> {
  const event = await findMisplacedEvent(tx, orgId);
  if (!event) return;
  throw new VerificationFault(
    event.misplaced
      ? `the event ${event.event_id} has a place in the queue that the service does not assign`
      : `the event ${event.event_id} has a queue time in the future: it was changed, or the clock of the database`,
  );
}

async function refuseLost(tx: Transaction, orgId: string): Promise<void> {
  const event = await findLostEvent(tx, orgId);
  if (!event) return;
  throw new VerificationFault(
    `the event ${event.event_id} of ${shortInstant(event.occurred_at)} was removed before it was sealed`,
  );
}

/** Sealing takes about a second, and an unsealed event is not protected. Throws VerificationFault. */
export async function refuseLate(tx: Transaction, orgId: string): Promise<void> {
  const event = await findLateEvent(tx, orgId);
  if (!event) return;
  throw new VerificationFault(
    `the event ${event.event_id} has waited for the sealer since ${shortInstant(event.queued_at)}: start the service, or verify again later`,
    'unsealed',
  );
}
