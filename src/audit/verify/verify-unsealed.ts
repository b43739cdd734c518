import type { Transaction } from '../../db/transaction.js';
import { shortInstant, type Instant } from '../../lib/instant.js';
import { leafOf } from '../events/content.js';
import type { EventKeys } from '../events/event-keys.js';
import { otherKeys, readUnsealed, type Round } from '../log/chain-queries.js';
import { Wrong } from './walk.js';

/** Events that are read together, at most. */
const BATCH = 500;

interface QueueTrust {
  keys: EventKeys | undefined;
  accepted: ReadonlySet<string> | undefined;
}

/**
 * Checks what is not in the log yet: lists show it already. What will be said of it there is said here, and what would keep it from
 * getting there. `marked`: the log has events of our own. Throws Wrong.
 */
export async function checkQueue(
  tx: Transaction,
  orgId: string,
  marked: boolean,
  { keys, accepted }: QueueTrust,
): Promise<void> {
  await findMisplaced(tx, orgId);
  await findLost(tx, orgId);
  // What was marked under a key that came meanwhile looks as if it were not. It was noted before.
  const trusted = keys && (await otherKeys(tx, keys.known)).length === 0 ? keys : undefined;
  let own = marked;
  let round: Round | undefined;
  do {
    const { events, left } = await readUnsealed(tx, orgId, round, { limit: BATCH, whole: true });
    for (const event of events) {
      const which = `the event ${event.id} of ${shortInstant(event.occurred_at)}`;
      const leaf = leafOf(event);
      if (event.leaf && !leaf.equals(event.leaf)) {
        throw new Wrong(
          `${which}, which waits to be sealed, was changed: its content does not have its hash`,
        );
      }
      if (!trusted) continue;
      if (event.mark && trusted.isMarked(leaf, event.mark)) own = true;
      else if (own && !accepted?.has(event.id)) {
        throw new Wrong(
          `${which}, which waits to be sealed, was inserted: nobody wrote it who has the event keys`,
        );
      }
    }
    round = left;
  } while (round);
}

/** Places count up from 1, and what waits came before now. */
async function findMisplaced(tx: Transaction, orgId: string): Promise<void> {
  const { rows } = await tx.query<{ event_id: string; misplaced: boolean }>(
    `select event_id, not place between 1 and ${Number.MAX_SAFE_INTEGER} as misplaced from unsealed_events
     where org_id = $1
       and (not place between 1 and ${Number.MAX_SAFE_INTEGER} or queued_at > clock_timestamp() + interval '1 minute')
     order by place limit 1`,
    [orgId],
  );
  const [first] = rows;
  if (!first) return;
  throw new Wrong(
    first.misplaced
      ? `the event ${first.event_id} waits at a place of the queue that the service gives to none`
      : `the event ${first.event_id} came into the queue later than now: somebody changed that, or the clock of the database`,
  );
}

async function findLost(tx: Transaction, orgId: string): Promise<void> {
  const { rows } = await tx.query<{ event_id: string; occurred_at: Instant }>(
    `select u.event_id, u.occurred_at from unsealed_events u
     where u.org_id = $1 and not exists (
       select from events e where e.org_id = $1 and e.occurred_at = u.occurred_at and e.id = u.event_id)
     order by u.place limit 1`,
    [orgId],
  );
  const [first] = rows;
  if (!first) return;
  throw new Wrong(
    `the event ${first.event_id} of ${shortInstant(first.occurred_at)} was removed before it was sealed`,
  );
}

/** Sealing takes a second. What waits for longer is protected by nothing, and nobody may be there who seals. */
export async function findLate(tx: Transaction, orgId: string): Promise<void> {
  const { rows } = await tx.query<{ event_id: string; queued_at: Instant }>(
    `select event_id, queued_at from unsealed_events
     where org_id = $1 and queued_at < clock_timestamp() - interval '1 minute'
     order by place limit 1`,
    [orgId],
  );
  const [first] = rows;
  if (!first) return;
  const { event_id, queued_at } = first;
  throw new Wrong(
    `the event ${event_id} waits since ${shortInstant(queued_at)} to be put into the log: nobody seals it, or there is much before it`,
    'unsealed',
  );
}

export async function countUnsealed(tx: Transaction, orgId: string): Promise<number> {
  const { rows } = await tx.query<{ count: number }>(
    'select count(*) from unsealed_events where org_id = $1',
    [orgId],
  );
  return rows[0]!.count;
}
