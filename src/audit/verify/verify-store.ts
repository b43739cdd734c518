import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { shortInstant } from '../../lib/instant.js';
import { actorId } from '../events/actor.js';
import { type EventKeys } from '../events/event-keys.js';
import { keepPartitions } from '../events/partitions.js';
import type { Checkpoint } from '../log/checkpoint.js';
import { getKeptFor, readDrops } from '../log/retention-queries.js';
import { isTrusted } from '../log/retention-signature.js';
import { keysSince } from '../log/signing-key.js';
import { MonthsMet } from './listed-months.js';
import { readEntries, readPlaces } from './log-queries.js';
import { checkQueue, countUnsealed, findLate } from './verify-unsealed.js';
import { Walk, Wrong, type Trust, type Verdict } from './walk.js';
import { Comparison, type Witness } from './witnesses.js';

export interface StoreOptions {
  /** What is known of the log from elsewhere. */
  witnesses?: readonly Witness[];
  /** With which what is not in the log yet was marked; where they are not known, its marks cannot be checked. */
  keys?: EventKeys | undefined;
  /** Called with the number of each entry. */
  onEntry?: (seq: number) => void;
}

/**
 * Walks the log of an organization in the database, as of one moment, in bounded memory. Returns the first thing that is
 * wrong with it, and how many events are not in it yet.
 */
export async function verifyStore(
  pool: Pool,
  orgId: string,
  trust: Trust,
  { witnesses = [], keys, onEntry = () => undefined }: StoreOptions = {},
): Promise<Verdict & { unsealed: number }> {
  return inTransaction(
    pool,
    async (tx) => {
      await tx.query('set transaction isolation level repeatable read, read only');
      await keepPartitions(tx);
      let walk: Walk | undefined;
      let wrong: Wrong | undefined;
      try {
        const end = await readEnd(tx, orgId);
        walk = new Walk(orgId, trust, await readDrops(tx, orgId), end);
        await walkLog(tx, orgId, walk, new Comparison(witnesses), onEntry);
        await findInserted(tx, orgId);
        await checkQueue(tx, orgId, walk.marked, { keys, accepted: trust.accepted });
        await checkRetention(tx, orgId, trust, end);
        await findLate(tx, orgId);
        await findGone(tx, orgId);
        checkEndKey(end, trust);
      } catch (error) {
        if (!(error instanceof Wrong)) throw error;
        wrong = error;
      }
      const { entries = 0, checkpoints = 0, unmarked = 0 } = walk ?? {};
      return {
        ...{ entries, checkpoints, unmarked },
        ...{ wrong: wrong?.message ?? null, fault: wrong?.fault ?? null },
        unsealed: await countUnsealed(tx, orgId),
      };
    },
    { unhurried: true },
  );
}

async function walkLog(
  tx: Transaction,
  orgId: string,
  walk: Walk,
  comparison: Comparison,
  onEntry: (seq: number) => void,
): Promise<void> {
  const months = new MonthsMet();
  await comparison.begin(walk);
  for await (const entries of readEntries(tx, orgId, { afterSeq: walk.place.seq })) {
    const places = await readPlaces(tx, orgId, entries);
    for (const entry of entries) {
      walk.next(entry);
      const { seq, event_id, occurred_at, link, event } = entry;
      // What filters ask for are copies.
      if (event && (event.actor_kind !== event.actor.kind || event.actor_id !== actorId(event.actor))) {
        throw new Wrong(
          `entry ${seq} (event ${event_id} of ${shortInstant(occurred_at)}) was changed: it is filed under another actor than it names`,
        );
      }
      if (event) months.meet(event);
      await comparison.meet(seq, link);
      onEntry(seq);
      const checkpoint = places.get(seq);
      if (checkpoint) walk.meet(checkpoint);
    }
  }
  // One that lies behind the end shows as well as the end itself that something was cut off.
  const beyond = await readCheckpointBehind(tx, orgId, walk.place.seq);
  walk.finish(beyond ?? (await readEnd(tx, orgId)));
  comparison.finish(walk.place.seq);
  await months.finish(tx, orgId);
}

/** Events that nobody sealed and nobody will. */
async function findInserted(tx: Transaction, orgId: string): Promise<void> {
  const { rows } = await tx.query<{ id: string; occurred_at: Instant }>(
    `select e.id, e.occurred_at from events e
     where e.org_id = $1
       and not exists (
         select from event_log l
         where l.org_id = $1 and l.event_id = e.id and l.occurred_at = e.occurred_at)
       and not exists (
         select from unsealed_events u
         where u.org_id = $1 and u.occurred_at = e.occurred_at and u.event_id = e.id)
     order by e.occurred_at, e.id limit 1`,
    [orgId],
  );
  const [first] = rows;
  if (first) {
    throw new Wrong(
      `the event ${first.id} of ${shortInstant(first.occurred_at)} was inserted: it is not in the log`,
    );
  }
}

async function checkRetention(
  tx: Transaction,
  orgId: string,
  { keys }: Trust,
  end: Checkpoint | undefined,
): Promise<void> {
  const kept = await getKeptFor(tx, orgId);
  if (!kept || isTrusted(kept, keysSince(keys, end?.key_id))) return;
  throw new Wrong(`that events are kept for ${kept.retention_months} months was not set by the service`);
}

/** An organization that has keys has the events of their making. */
async function findGone(tx: Transaction, orgId: string): Promise<void> {
  const { rows } = await tx.query(
    `select from api_keys where org_id = $1
       and not exists (select from event_chains where org_id = $1 and seq > 0)
       and not exists (select from unsealed_events where org_id = $1)
     limit 1`,
    [orgId],
  );
  if (rows.length > 0) throw new Wrong('the log is gone: there are keys, and not the events of their making');
}

/** The service signs all that it has with a new key at once: with the one before somebody else could write a history anew. */
function checkEndKey(end: Checkpoint | undefined, { keys }: Trust): void {
  const [current] = keys;
  if (!end || !current || end.key_id === current.id) return;
  throw new Wrong(
    `its end is signed by the key ${end.key_id}, which ${current.id} has replaced: the service has not signed it anew yet, or somebody else has that key`,
    'unsealed',
  );
}

async function readCheckpointBehind(
  tx: Transaction,
  orgId: string,
  seq: number,
): Promise<Checkpoint | undefined> {
  const { rows } = await tx.query<Checkpoint & Record<string, unknown>>(
    `select org_id, seq, link, at, marked_from, key_id, signature from event_checkpoints
     where org_id = $1 and seq > $2 order by seq desc limit 1`,
    [orgId, seq],
  );
  return rows[0];
}

export async function readEnd(tx: Transaction, orgId: string): Promise<Checkpoint | undefined> {
  const { rows } = await tx.query<Checkpoint & Record<string, unknown>>(
    `select org_id, seq, link, at, marked_from, key_id, signature from event_chains where org_id = $1 and seq > 0`,
    [orgId],
  );
  return rows[0];
}
