import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { operator } from '../../src/audit/events/actor.js';
import { insertPublicKey } from '../../src/audit/log/key-queries.js';
import { migrate } from '../../src/db/migrate.js';
import { connectAlone } from '../../src/db/pool.js';
import { createKey } from '../../src/keys/create.js';
import { now } from '../../src/lib/instant.js';
import { addMember } from '../../src/members/add.js';
import { createOrg } from '../../src/orgs/create.js';
import { insertVolume } from '../../src/volumes/queries.js';
import { smaller, type DataSet } from './data-set.js';
import { withoutIndexes } from './indexes.js';
import { loadEvents, makeMonths } from './load-events.js';
import { loadSandboxes, type LoadedSandbox } from './load-sandboxes.js';
import { Progress } from './progress.js';
import type { Store } from './store.js';

const BENCH = operator('bench');
/** The volumes of each organization. */
const VOLUMES = 20;
const MEMBERS = 20;
const KEYS = 20;

interface LoadedOrg {
  id: string;
  /** An API key with every scope. */
  key: string;
  keyId: string;
}

/** The file beside a store that allows its reuse. */
export interface Loaded {
  dataSet: DataSet;
  /** Milliseconds: time filters are relative to this. */
  until: number;
  /** The first one is measured. */
  orgs: LoadedOrg[];
}

/** Loads the data set, unless the store in this directory has it already. */
export async function ensureLoaded(store: Store, dataSet: DataSet, what: string): Promise<Loaded> {
  const note = join(store.directory, 'loaded.json');
  await migrate(store.address);
  if (existsSync(note)) {
    const loaded = JSON.parse(readFileSync(note, 'utf8')) as Loaded;
    if (JSON.stringify(loaded.dataSet) !== JSON.stringify(dataSet)) {
      throw new Error(`${store.directory} holds another data set: choose another directory, or remove it`);
    }
    return loaded;
  }
  const begun = join(store.directory, 'loading');
  if (existsSync(begun)) throw new Error(`what was being loaded to ${store.directory} broke off: remove it`);
  writeFileSync(begun, '');
  const loaded = await load(store, dataSet, what);
  rmSync(begun);
  writeFileSync(note, JSON.stringify(loaded));
  return loaded;
}

async function load(store: Store, dataSet: DataSet, what: string): Promise<Loaded> {
  const { pool, address, keys } = store;
  const clients = [await connectAlone(address), await connectAlone(address)] as const;
  for (const client of clients) await client.query('set statement_timeout = 0');
  const [client] = clients;
  const until = Date.now();
  const sizes = [dataSet, ...Array.from({ length: dataSet.others }, () => smaller(dataSet))];
  const total = (part: 'sandboxes' | 'events') => sizes.reduce((sum, size) => sum + size[part], 0);
  const progress = new Progress(`loading ${what}`);
  try {
    await insertPublicKey(pool, keys.current, now());
    await makeMonths(client, until);
    progress.begin('sandboxes with their runs', total('sandboxes'));
    const orgs: LoadedOrg[] = [];
    const sandboxes: LoadedSandbox[][] = [];
    for (const [index, size] of sizes.entries()) {
      const slug = `bench-${index}`;
      const org = await makeOrg(store, slug, until);
      orgs.push(org);
      const each = { id: org.id, slug };
      sandboxes.push(await loadSandboxes(client, each, size.sandboxes, until, progress.add));
    }
    progress.begin('events', total('events'));
    await withoutIndexes(client, 'events', async () => {
      for (const [index, size] of sizes.entries()) {
        const made = { keys, until };
        await loadEvents(clients, orgs[index]!, sandboxes[index]!, size.events, made, progress.add);
      }
      progress.begin('indexes of them and statistics');
    });
    await client.query('vacuum analyze');
    await client.query('checkpoint');
    return { dataSet, until, orgs };
  } finally {
    progress.end();
    for (const each of clients) await each.end();
  }
}

/** An organization with limits that it does not reach, so that each create counts against them. */
async function makeOrg(store: Store, slug: string, until: number): Promise<LoadedOrg> {
  const { pool } = store;
  const { id } = await createOrg(pool, { name: 'Bench', slug }, BENCH);
  const { id: keyId, key } = await createKey(pool, id, 'bench', BENCH);
  for (let index = 1; index < KEYS; index += 1) await createKey(pool, id, `key-${index}`, BENCH);
  for (let index = 0; index < VOLUMES; index += 1) {
    await insertVolume(pool, {
      org_id: id,
      id: uuidv7(),
      kind: 'managed',
      name: `volume-${index}`,
      labels: { team: 'bench' },
      capacity_gib: null,
      created_at: new Date(until).toISOString(),
    });
  }
  for (let index = 0; index < MEMBERS; index += 1) {
    await addMember(
      pool,
      id,
      { email: `member-${index}@example.com`, role: 'member', displayName: null },
      BENCH,
    );
  }
  await pool.query(
    `update quotas set max_sandboxes = 10000000, max_concurrent_persistent_running = 1000000, max_vcpus_per_sandbox = 64
     where org_id = $1`,
    [id],
  );
  return { id, key, keyId };
}
