import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { shortInstant, startOfMonth } from '../../lib/instant.js';
import { actorId } from '../events/actor.js';
import type { EventKeys } from '../events/event-keys.js';
import { lockPartitions } from '../events/partition-queries.js';
import { getHead, lastCheckpointAfter, readCheckpoints } from '../log/chain-queries.js';
import type { Checkpoint } from '../log/checkpoint.js';
import { getRetention, listDrops } from '../log/retention-queries.js';
import { isRetentionTrusted } from '../log/retention-signature.js';
import { keysSince } from '../log/signed-text.js';
import { readEntries } from './entry-batches.js';
import { LogVerifier } from './log-verifier.js';
import { nodeCrypto, type Trust } from './node-crypto.js';
import { ReferenceComparison, type ReferenceLog } from './reference-logs.js';
import { VerificationFault, type Verdict } from './verification-fault.js';
import {
  countUnsealed,
  findInsertedEvent,
  hasKeysWithoutLog,
  listedMonths,
  type ListedMonth,
} from './verify-queries.js';
import { refuseLate, verifyQueue } from './verify-queue.js';
import type { EventContent } from '../events/hash-chain.js';

export interface StoreOptions {
  references?: readonly ReferenceLog[];
  /** The keys that mark unsealed events. Default: their marks are not verified. */
  keys?: EventKeys | undefined;
  /** No service has sealed events of late, so they may have waited for any time. */
  isAtRest?: boolean;
  onEntry?: (seq: number) => void;
}

/** Verifies the log from one snapshot, in bounded memory. */
export async function verifyStore(
  pool: Pool,
  orgId: string,
  trust: Trust,
  { references = [], keys, isAtRest = false, onEntry = () => undefined }: StoreOptions = {},
): Promise<Verdict & { unsealed: number }> {
  return inTransaction(
    pool,
    async (tx) => {
      await tx.query('set transaction isolation level repeatable read, read only');
      await lockPartitions(tx);
      let verifier: LogVerifier | undefined;
      let wrong: VerificationFault | undefined;
      try {
        const head = await getHead(tx, orgId);
        verifier = new LogVerifier(orgId, nodeCrypto(trust), await listDrops(tx, orgId), head);
        await verifyLog(tx, orgId, verifier, new ReferenceComparison(references), onEntry);
        await refuseInserted(tx, orgId);
        await verifyQueue(tx, orgId, verifier.marked, { keys, accepted: trust.accepted });
        await verifyRetention(tx, orgId, trust, head);
        if (!isAtRest) await refuseLate(tx, orgId);
        await refuseMissingLog(tx, orgId);
        requireCurrentKey(head, trust);
      } catch (error) {
        if (!(error instanceof VerificationFault)) throw error;
        wrong = error;
      }
      const { entries = 0, checkpoints = 0, unmarked = 0 } = verifier ?? {};
      return {
        entries,
        checkpoints,
        unmarked,
        wrong: wrong?.message ?? null,
        fault: wrong?.fault ?? null,
        unsealed: await countUnsealed(tx, orgId),
      };
    },
    { unhurried: true },
  );
}

async function verifyLog(
  tx: Transaction,
  orgId: string,
  verifier: LogVerifier,
  comparison: ReferenceComparison,
  onEntry: (seq: number) => void,
): Promise<void> {
  const months = new MonthIndexCheck();
  await comparison.compareBeginning(verifier);
  for await (const entries of readEntries(tx, orgId, { afterSeq: verifier.position.seq })) {
    const checkpoints = await readCheckpoints(tx, orgId, entries);
    for (const entry of entries) {
      verifier.verifyEntry(entry);
      const { seq, event_id, occurred_at, event } = entry;
      // Filters compare copies of the actor's kind and id, which the leaf does not cover.
      if (event && (event.actor_kind !== event.actor.kind || event.actor_id !== actorId(event.actor))) {
        throw new VerificationFault(
          `entry ${seq} (event ${event_id} of ${shortInstant(occurred_at)}) was changed: filters find it by another actor than its own`,
        );
      }
      if (event) months.add(event);
      await comparison.compareEntry(entry);
      onEntry(seq);
      const checkpoint = checkpoints.get(seq);
      if (checkpoint) verifier.verifyCheckpoint(checkpoint);
    }
  }
  // A checkpoint after the last entry reveals a cut end, as the head does.
  const { seq } = verifier.position;
  verifier.verifyEnd((await lastCheckpointAfter(tx, orgId, seq)) ?? (await getHead(tx, orgId)));
  comparison.compareEnd(seq);
  await months.finish(tx, orgId);
}

async function refuseInserted(tx: Transaction, orgId: string): Promise<void> {
  const event = await findInsertedEvent(tx, orgId);
  if (!event) return;
  throw new VerificationFault(
    `the event ${event.id} of ${shortInstant(event.occurred_at)} was inserted: it is not in the log`,
  );
}

async function verifyRetention(
  tx: Transaction,
  orgId: string,
  { keys }: Trust,
  head: Checkpoint | undefined,
): Promise<void> {
  const retention = await getRetention(tx, orgId);
  if (!retention || isRetentionTrusted(retention, keysSince(keys, head?.key_id))) return;
  throw new VerificationFault(
    `the retention of ${retention.retention_months} months was changed: the service did not sign it`,
  );
}

async function refuseMissingLog(tx: Transaction, orgId: string): Promise<void> {
  if (!(await hasKeysWithoutLog(tx, orgId))) return;
  throw new VerificationFault('the log is gone: there are API keys without the events of their creation');
}

/** After a rotation the service signs every head with the new key: a holder of the old key could rewrite history. */
function requireCurrentKey(head: Checkpoint | undefined, { keys }: Trust): void {
  const [current] = keys;
  if (!head || !current || head.key_id === current.id) return;
  throw new VerificationFault(
    `its end is signed by the key ${head.key_id}, which ${current.id} replaced: the service has not signed it again yet, or the old key was stolen`,
    'unsealed',
  );
}

/** Checks `event_months`: lists do not find events whose type and month are missing there. */
class MonthIndexCheck {
  private readonly found = new Map<string, ListedMonth>();

  add({ event_type, category, occurred_at }: EventContent): void {
    const month = { event_type, category, month: startOfMonth(occurred_at) };
    this.found.set(keyOf(month), month);
  }

  /** Called after the last event. Throws VerificationFault. */
  async finish(tx: Transaction, orgId: string): Promise<void> {
    const listed = new Set((await listedMonths(tx, orgId)).map(keyOf));
    for (const [key, { event_type, month }] of this.found) {
      if (listed.has(key)) continue;
      throw new VerificationFault(
        `lists do not show the ${event_type} events of ${month.slice(0, 7)}: their row in event_months was removed`,
      );
    }
  }
}

function keyOf({ event_type, category, month }: ListedMonth): string {
  return JSON.stringify([event_type, category, month]);
}
