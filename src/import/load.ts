import { operator } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventSql } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { completeQuotas } from '../quotas/queries.js';
import { insertVolume } from '../volumes/queries.js';
import {
  insertImportedLabels,
  LOAD_ORDER,
  loadKind,
  orgsWithoutHostVolume,
  removeReplacedHostVolumes,
  selectUsagePartition,
} from './load-queries.js';
import type { Kind } from './schema.js';

export type Counts = Record<Kind, number>;

/** Loads the staged rows into their tables. Returns the number of new rows. */
export async function loadStaged(tx: EventSql, at: Instant): Promise<Counts> {
  await removeReplacedHostVolumes(tx, at);
  await selectUsagePartition(tx);
  const all = zeroCounts();
  const byOrg = new Map<string, Counts>();
  for (const kind of LOAD_ORDER) {
    for (const { org_id: orgId, count } of await loadKind(tx, kind, at)) {
      const counts = byOrg.get(orgId) ?? zeroCounts();
      byOrg.set(orgId, counts);
      counts[kind] += count;
      all[kind] += count;
    }
  }
  await insertImportedLabels(tx);
  await completeHostVolumes(tx, at);
  await completeQuotas(tx, at);
  for (const [orgId, { sandbox, run, volume, accrual, event }] of byOrg) {
    await recordEvent(tx, {
      orgId,
      type: 'history_imported',
      actor: operator('import'),
      resourceId: null,
      at,
      payload: { sandboxes: sandbox, runs: run, volumes: volume, accruals: accrual, events: event },
    });
  }
  return all;
}

export function zeroCounts(): Counts {
  return { org: 0, sandbox: 0, run: 0, volume: 0, accrual: 0, event: 0 };
}

async function completeHostVolumes(tx: EventSql, at: Instant): Promise<void> {
  for (const orgId of await orgsWithoutHostVolume(tx)) {
    await insertVolume(tx, {
      org_id: orgId,
      id: newId(),
      kind: 'host',
      name: null,
      labels: {},
      capacity_gib: null,
      created_at: at,
    });
  }
}
