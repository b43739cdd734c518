import { readSeenHeads } from '../audit/log/seen-heads.js';
import { eventKeySourceOf, findEventKeys } from '../audit/log/signing-key.js';
import { verifyStore } from '../audit/verify/verify-store.js';
import { compareCatalogues, readCatalogue, wantedCatalogue } from '../db/catalogue.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { listOrgs } from '../orgs/queries.js';
import { findKeyring, keySourceOf } from '../secrets/key-file.js';
import { sealingKeys } from '../secrets/queries.js';
import { headsFileOf, type Places } from './files/kept-files.js';

export interface Verification {
  /** The restored installation is not as it was. */
  faults: string[];
  /** Parts that could not be verified, and their remedy. */
  notes: string[];
  events: number;
}

/**
 * Verifies the schema, the event log of every organization, and the keys. The rows were counted before their commit.
 */
export async function verifyRestored(pool: Pool, places: Places): Promise<Verification> {
  const faults: string[] = [];
  const notes: string[] = [];
  const differences = compareCatalogues(wantedCatalogue(), await inTransaction(pool, readCatalogue));
  faults.push(...differences.map(({ object }) => `${object} is not as the migrations make it`));
  const keyring = findKeyring(keySourceOf(places));
  for (const id of await sealingKeys(pool)) {
    if (!keyring?.has(id))
      notes.push(`the key ${id} of secrets is not here: put the key file back before the first start`);
  }
  return { faults, notes, events: await verifyLogs(pool, places, faults, notes) };
}

async function verifyLogs(pool: Pool, places: Places, faults: string[], notes: string[]): Promise<number> {
  const keys = findEventKeys(eventKeySourceOf(places));
  if (!keys) {
    notes.push(
      'the event log is not verified, as its keys are not here: put them back, then run "sandkeep events verify"',
    );
    return 0;
  }
  const file = headsFileOf(places).path;
  const heads = readSeenHeads(file);
  const trust = { keys: keys.known, accepted: new Set<string>() };
  let events = 0;
  for (const { id, slug } of await listOrgs(pool)) {
    const head = heads.get(id);
    heads.delete(id);
    const references = head ? [{ name: file, positions: only(head) }] : [];
    const { wrong, entries } = await verifyStore(pool, id, trust, { references, keys, isAtRest: true });
    if (wrong !== null) faults.push(`the event log of ${slug}: ${wrong}`);
    events += entries;
  }
  for (const id of heads.keys())
    faults.push(`${file} knows a log of the organization ${id}, which is not in the database`);
  return events;
}

async function* only<T>(position: T): AsyncGenerator<T> {
  yield await Promise.resolve(position);
}
