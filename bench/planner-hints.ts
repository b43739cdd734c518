import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { operator } from '../src/audit/events/actor.js';
import { table } from '../src/cli/table.js';
import { READ_SETTINGS } from '../src/db/pipelined-reads.js';
import { SEPARATE } from '../src/db/planner-hints.js';
import { connectAlone, type Address, type Sql } from '../src/db/pool.js';
import { createOrg } from '../src/orgs/create.js';
import { getSandboxPage, MERGE_ONLY, type SandboxFilter } from '../src/sandboxes/reads/list-queries.js';
import { lockWaiting, readQueues, STARTING } from '../src/sandboxes/placement/queries.js';
import { getSandboxText } from '../src/sandboxes/queries.js';
import { sandboxesToReconcile } from '../src/sandboxes/reconcile/queries.js';
import { loadSandboxes } from './speed/load-sandboxes.js';
import { openStore } from './store.js';

interface Captured {
  name?: string;
  text: string;
  values: unknown[];
}

/** The statement of a query function. */
async function capture(query: (sql: Sql) => Promise<unknown>): Promise<Captured> {
  let captured: Captured | undefined;
  await query({
    query: (statement, values = []) => {
      captured = typeof statement === 'string' ? { text: statement, values: [...values] } : statement;
      return Promise.resolve({ rows: [], rowCount: 0 });
    },
  });
  return captured!;
}

const BENCH = operator('bench');
const WAITING = 2_000;
const BATCH = 500;
const PAGE = 21;
const NO_FILTER: SandboxFilter = {
  labels: [],
  statuses: [],
  namePrefix: undefined,
  createdAfter: undefined,
  createdBefore: undefined,
};
const listed = (orgId: string, labels: SandboxFilter['labels'], sideBySide = false) =>
  capture((sql) =>
    getSandboxPage(sql, orgId, {
      filter: { ...NO_FILTER, labels },
      sort: '-created_at',
      limit: PAGE,
      sideBySide,
    }),
  );

/** Prints the time of each query with its planner hint and without it, beside so many sandboxes. */
export async function plannerHints(sandboxes: number, rounds: number): Promise<void> {
  const store = await openStore();
  const { address } = store;
  const { id: orgId } = await createOrg(store.pool, { name: 'Bench', slug: 'bench' }, BENCH);
  const client = await connectAlone(address);
  await client.query('set statement_timeout = 0');
  const loaded = await loadSandboxes(
    client,
    { id: orgId, slug: 'bench' },
    sandboxes,
    Date.now(),
    () => undefined,
  );
  await client.query('vacuum analyze');

  const rows: string[][] = [];
  // A connection may switch a prepared statement to its generic plan at any time.
  const generic = await session(address, ['plan_cache_mode=force_generic_plan']);
  const plain = await session(address);
  const reads = await session(address, READ_SETTINGS);
  const ids = loaded.slice(0, 300).map(({ id }) => ({ orgId, sandboxId: id }));
  const worker = { id: uuidv7(), runtime: 'simulated' };

  for (const [name, statement] of [
    [
      'one sandbox',
      await capture((sql) => getSandboxText(sql, orgId, { id: loaded[0]!.id }, { whole: false })),
    ],
    ['a page', await listed(orgId, [])],
    ['a page with a rare label', await listed(orgId, [['pilot', 'yes']])],
  ] as const) {
    rows.push(await compare(name, 'READ_SETTINGS', rounds, run(reads, statement), run(plain, statement)));
  }
  const both = await listed(
    orgId,
    [
      ['env', 'prod'],
      ['app', 'app-2'],
    ],
    true,
  );
  const apart = await listed(
    orgId,
    [
      ['gpu', 'a100'],
      ['zone', 'eu-north-1'],
    ],
    true,
  );
  for (const [name, statement] of [
    ['two common labels', both],
    ['two labels that never meet', apart],
  ] as const) {
    const hinted = run(generic, statement, MERGE_ONLY);
    rows.push(await compare(name, 'MERGE_ONLY', rounds, hinted, run(generic, statement, 'select')));
  }
  for (const [name, labels] of [
    ['a common label', [['env', 'prod']]],
    [
      'a rare label and a common one',
      [
        ['pilot', 'yes'],
        ['env', 'prod'],
      ],
    ],
  ] as [string, [string, string][]][]) {
    rows.push(await without(name, 'SEPARATE', generic, await listed(orgId, labels), rounds));
  }
  const held = await capture((sql) => sandboxesToReconcile(sql, worker, ids));
  rows.push(await without('300 held sandboxes', 'SEPARATE', generic, held, rounds));
  const runIds = await addWaiting(client, orgId);
  const queue = await capture((sql) => readQueues(sql, 'simulated', []));
  const lock = await capture((sql) =>
    lockWaiting(
      sql,
      'simulated',
      runIds.slice(0, BATCH).map((runId) => ({ orgId, runId })),
    ),
  );
  for (const hint of ['SEPARATE', 'STARTING'] as const) {
    rows.push(await without(`${WAITING} new waiting runs`, hint, plain, queue, rounds));
    rows.push(await without('their sandboxes, locked', hint, plain, lock, rounds));
  }

  console.log(table(['query', 'hint', 'with it, ms', 'without, ms'], rows));
  for (const each of [plain, generic, reads, client]) await each.end();
  await store.close();
}

async function session(address: Address, settings: readonly string[] = []): Promise<pg.Client> {
  const client = await connectAlone(address);
  for (const setting of settings) await client.query(`set ${setting}`);
  return client;
}

/** Runs a statement after `before`, in a transaction that is rolled back. */
function run(client: pg.Client, statement: Captured, before = 'select'): () => Promise<number> {
  return async () => {
    await client.query('begin');
    try {
      await client.query(before);
      const begun = performance.now();
      await client.query(statement);
      return performance.now() - begun;
    } finally {
      await client.query('rollback');
    }
  };
}

const TEXTS = { SEPARATE: [SEPARATE, ''], STARTING: [STARTING, "own.status = 'starting'"] } as const;

function without(
  name: string,
  hint: keyof typeof TEXTS,
  client: pg.Client,
  statement: Captured,
  rounds: number,
): Promise<string[]> {
  const [hinted, plain] = TEXTS[hint];
  const text = statement.text.replaceAll(hinted, plain);
  const other = { ...statement, text, ...(statement.name ? { name: uuidv7() } : {}) };
  return compare(name, hint, rounds, run(client, statement), run(client, other));
}

/** In turns, so that other load on the machine slows both. */
async function compare(
  name: string,
  hint: string,
  rounds: number,
  hinted: () => Promise<number>,
  plain: () => Promise<number>,
): Promise<string[]> {
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    times[0].push(await hinted());
    times[1].push(await plain());
  }
  const medians = times.map((all) => all.toSorted((a, b) => a - b)[Math.floor(rounds / 2)]!.toFixed(2));
  return [name, hint, ...medians];
}

/** Adds starting sandboxes that the statistics of the tables do not know. Returns their runs. */
async function addWaiting(client: pg.Client, orgId: string): Promise<string[]> {
  const runIds = Array.from({ length: WAITING }, () => uuidv7());
  await client.query(
    `with added as (
       insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, run_spec, runtime, run_id)
       select $1, gen_random_uuid(), id, id, 'starting', false, now(), now(), '{}', 'simulated', id
       from unnest($2::uuid[]) as id
       returning org_id, id, run_id
     )
     insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib)
     select org_id, run_id, id, 1, 512, 0 from added`,
    [orgId, runIds],
  );
  return runIds;
}
