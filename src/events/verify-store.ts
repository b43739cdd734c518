import { rowsOf } from '../db/rows.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { shortInstant } from '../lib/instant.js';
import type { Checkpoint, Drop } from './checkpoint.js';
import type { EventActor } from './schema.js';
import type { PublicKey } from './signing-key.js';
import { Tampered, Walk, type Verdict } from './verify.js';

/**
 * Walks the log of an organization in the database, as of one moment, in bounded memory. Returns the first thing that is
 * wrong with it, and how many events are not in it yet. `onEntry`: called with the number of each entry.
 */
export async function verifyStore(
  pool: Pool,
  orgId: string,
  trusted: readonly PublicKey[],
  onEntry: (seq: number) => void = () => undefined,
): Promise<Verdict & { unsealed: number }> {
  return inTransaction(
    pool,
    async (tx) => {
      await tx.query('set transaction isolation level repeatable read, read only');
      let walk: Walk | undefined;
      let wrong: string | null = null;
      try {
        walk = new Walk(orgId, trusted, await readDrops(tx, orgId));
        await walkLog(tx, orgId, walk, onEntry);
        await findInserted(tx, orgId);
      } catch (error) {
        if (!(error instanceof Tampered)) throw error;
        wrong = error.message;
      }
      const { entries = 0, checkpoints = 0 } = walk ?? {};
      return { entries, checkpoints, wrong, unsealed: await countUnsealed(tx, orgId) };
    },
    { unhurried: true },
  );
}

type EntryRow = [
  number,
  string,
  Instant,
  Buffer,
  Buffer,
  string | null,
  string,
  string,
  EventActor,
  unknown,
  string | null,
];

async function walkLog(
  tx: Transaction,
  orgId: string,
  walk: Walk,
  onEntry: (seq: number) => void,
): Promise<void> {
  const checkpoints = await readCheckpoints(tx, orgId);
  let met = checkpoints.findIndex(({ seq }) => seq > walk.place.seq);
  if (met === -1) met = checkpoints.length;
  const entries = rowsOf<EntryRow>(tx, 'log', {
    text: `select l.seq, l.event_id, l.occurred_at, l.leaf, l.link,
         e.org_id, e.category, e.event_type, e.actor, e.payload, e.resource_id
       from event_log l
       left join events e on e.org_id = $1 and e.occurred_at = l.occurred_at and e.id = l.event_id
       where l.org_id = $1 and l.seq > $2
       order by l.seq`,
    values: [orgId, walk.place.seq],
  });
  for await (const batch of entries) {
    for (const [seq, event_id, occurred_at, leaf, link, org_id, ...rest] of batch) {
      const [category, event_type, actor, payload, resource_id] = rest;
      const event =
        org_id === null
          ? null
          : { org_id, id: event_id, occurred_at, category, event_type, actor, payload, resource_id };
      walk.next({ seq, event_id, occurred_at, leaf, link, event });
      onEntry(seq);
      if (checkpoints[met]?.seq === seq) walk.meet(checkpoints[met++]!);
    }
  }
  // One that lies behind the end shows as well as the end itself that something was cut off.
  const ends = [await readEnd(tx, orgId), checkpoints.at(-1)].filter((end) => end !== undefined);
  walk.finish(ends.reduce<Checkpoint | undefined>((a, b) => (a && a.seq >= b.seq ? a : b), undefined));
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
    throw new Tampered(
      `the event ${first.id} of ${shortInstant(first.occurred_at)} was inserted: it is not in the log`,
    );
  }
  const { rows: lost } = await tx.query<{ event_id: string; occurred_at: Instant }>(
    `select u.event_id, u.occurred_at from unsealed_events u
     where u.org_id = $1 and not exists (
       select from events e where e.org_id = $1 and e.occurred_at = u.occurred_at and e.id = u.event_id)
     order by u.occurred_at, u.event_id limit 1`,
    [orgId],
  );
  if (lost[0]) {
    throw new Tampered(
      `the event ${lost[0].event_id} of ${shortInstant(lost[0].occurred_at)} was removed before it was sealed`,
    );
  }
}

async function countUnsealed(tx: Transaction, orgId: string): Promise<number> {
  const { rows } = await tx.query<{ count: number }>(
    'select count(*) from unsealed_events where org_id = $1',
    [orgId],
  );
  return rows[0]!.count;
}

/** One for a thousand entries or a minute: few enough to be held. */
export async function readCheckpoints(tx: Transaction, orgId: string): Promise<Checkpoint[]> {
  const { rows } = await tx.query<Checkpoint & Record<string, unknown>>(
    `select org_id, seq, link, at, key_id, signature from event_checkpoints where org_id = $1 order by seq`,
    [orgId],
  );
  return rows;
}

export async function readDrops(tx: Transaction, orgId: string): Promise<Drop[]> {
  const { rows } = await tx.query<Drop & Record<string, unknown>>(
    `select org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature
     from event_drops where org_id = $1 order by seq`,
    [orgId],
  );
  return rows;
}

export async function readEnd(tx: Transaction, orgId: string): Promise<Checkpoint | undefined> {
  const { rows } = await tx.query<Checkpoint & Record<string, unknown>>(
    `select org_id, seq, link, at, key_id, signature from event_chains where org_id = $1 and seq > 0`,
    [orgId],
  );
  return rows[0];
}
