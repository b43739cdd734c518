import { once } from 'node:events';
import { Agent, createServer, request, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { operator } from '../src/audit/events/actor.js';
import { table } from '../src/cli/table.js';
import type { Pool } from '../src/db/pool.js';
import { createKey } from '../src/keys/create.js';
import { createOrg } from '../src/orgs/create.js';
import { openStore } from './store.js';

const ORGS = 8;
const SANDBOXES = 5_000;
const EVENTS = 20_000;

interface Org {
  key: string;
  ids: string[];
}

let made = 0;
const REQUESTS: Record<string, (org: Org, index: number) => { path: string; body?: unknown }> = {
  'get one': ({ ids }, index) => ({ path: `/v1/sandboxes/${ids[index % ids.length]}` }),
  'list 20': () => ({ path: '/v1/sandboxes?limit=20' }),
  'list by label': () => ({ path: `/v1/sandboxes?labels=${encodeURIComponent('{"team":"t1","env":"e2"}')}` }),
  'events, 20': () => ({ path: '/v1/events?limit=20&event_type=sandbox_started' }),
  create: () => ({
    path: '/v1/sandboxes',
    body: {
      name: `made-${(made += 1)}`,
      labels: { team: 't1' },
      image: { type: 'oci', reference: 'busybox' },
    },
  }),
};

/** Prints the cost of row-level security: for one organization, and when each request is from a different one. */
export async function organizations(requests: number): Promise<void> {
  await compare(['no policies', 'as it is'], Object.keys(REQUESTS), [1, ORGS], requests);
}

/** Prints the cost of authentication and authorization. */
export async function auth(requests: number): Promise<void> {
  await compare(['no authentication', 'as it is'], ['get one', 'list 20'], [1], requests);
}

/** Prints the cost of metrics, while nothing scrapes them. */
export async function metrics(requests: number): Promise<void> {
  await compare(['as it is', 'with metrics'], ['get one', 'list 20', 'create'], [1], requests);
}

/** Prints the cost of traces, with a collector that accepts everything. `share`: of the traces that are sampled. */
export async function traces(requests: number, share: number): Promise<void> {
  const sink = createServer((request, response) => void request.resume().on('end', () => response.end()));
  sink.listen(0, '127.0.0.1');
  await once(sink, 'listening');
  const url = `http://127.0.0.1:${(sink.address() as AddressInfo).port}`;
  console.log(`${share * 100} % of the traces are sampled.`);
  await compare(['as it is', 'with traces'], ['get one', 'list 20', 'create'], [1], requests, [
    url,
    String(share),
  ]);
  sink.closeAllConnections();
  sink.close();
}

/** Times the service beside another with one layer more, on one database, in turns. */
async function compare(
  arms: readonly [string, string],
  names: string[],
  orgCounts: number[],
  requests: number,
  args: string[] = [],
): Promise<void> {
  const store = await openStore();
  const { pool } = store;
  try {
    const orgs: (Org & { id: string })[] = [];
    for (let index = 0; index < ORGS; index += 1) orgs.push(await load(pool, index));
    const script = fileURLToPath(new URL('arm-server.js', import.meta.url));
    const start = async (name: string) =>
      (await store.start([script, name, store.url, store.directory, orgs[0]!.id, ...args])).url;
    const bases = [await start(arms[0]), await start(arms[1])] as const;
    for (const org of orgs) await multiply(pool, bases[1], org);
    await pool.query('analyze');
    const rows: string[][] = [];
    for (const name of names) {
      for (const count of orgCounts) {
        rows.push([name, String(count), ...(await measure(bases, name, orgs.slice(0, count), requests))]);
      }
    }
    console.log(
      `Node ${process.versions.node}, ${requests} requests of each in turns, one at a time, tenth percentile; ${SANDBOXES} sandboxes and ${EVENTS} events an organization\n`,
    );
    const heads = arms.map((arm) => `${arm.toUpperCase()} ms`);
    console.log(table(['REQUEST', 'ORGANIZATIONS', ...heads, 'RATIO'], rows));
  } finally {
    await store.close();
  }
}

/** The tenth percentile of both: other load on the machine only adds to a time, and affects both alike in turns. */
async function measure(
  bases: readonly [string, string],
  name: string,
  orgs: Org[],
  requests: number,
): Promise<string[]> {
  const times: [number[], number[]] = [[], []];
  for (let index = 0; index < requests; index += 1) {
    const order = index % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
    for (const which of order) {
      times[which].push(await ask(bases[which], orgs[index % orgs.length]!, name, index));
    }
  }
  const [without, withIt] = times.map(tenth) as [number, number];
  return [without.toFixed(3), withIt.toFixed(3), (withIt / without).toFixed(3)];
}

const agent = new Agent({ keepAlive: true });

async function ask(base: string, org: Org, name: string, index: number): Promise<number> {
  const { path, body } = REQUESTS[name]!(org, index);
  const headers = { authorization: `Bearer ${org.key}`, 'content-type': 'application/json' };
  const begun = performance.now();
  const sent = request(`${base}${path}`, { agent, headers, method: body === undefined ? 'GET' : 'POST' });
  sent.end(body === undefined ? undefined : JSON.stringify(body));
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const answered = await text(answer);
  if (answer.statusCode !== 200) throw new Error(answered);
  return performance.now() - begun;
}

async function load(pool: Pool, index: number): Promise<Org & { id: string }> {
  const actor = operator('bench');
  const { id } = await createOrg(pool, { name: 'Bench', slug: `bench-${index}` }, actor);
  const { key } = await createKey(pool, id, 'bench', actor);
  await pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
     select $1, gen_random_uuid(), now() - n * interval '1 minute', 'sandbox',
       case n % 4 when 0 then 'sandbox_started' else 'sandbox_stopped' end, '{"kind":"system","code":"bench","label":"Bench"}', '{}', 'system', 'bench'
     from generate_series(1, $2::int) n`,
    [id, EVENTS],
  );
  return { id, key, ids: [] };
}

/** Copies a sandbox that the API created. */
async function multiply(pool: Pool, base: string, org: Org & { id: string }): Promise<void> {
  await ask(base, org, 'create', 0);
  const { rows } = await pool.query<{ id: string }>(
    `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, spec, run_spec, runtime)
     select org_id, gen_random_uuid(), 'box-' || n, slug || '-' || n, status, ephemeral,
       created_at - n * interval '1 second', changed_at, spec, run_spec, runtime
     from sandboxes, generate_series(1, $2::int) n where org_id = $1
     returning id`,
    [org.id, SANDBOXES],
  );
  org.ids.push(...rows.slice(0, 1_000).map((row) => row.id));
  await pool.query(
    `insert into sandbox_labels (org_id, key, value, created_at, sandbox_id)
     select org_id, label.key, label.value, created_at, id
     from sandboxes, lateral substring(name from '[0-9]+$') n,
       lateral (values ('team', 't' || n::int % 10), ('env', 'e' || n::int % 7)) as label (key, value)
     where org_id = $1 and name like 'box-%'`,
    [org.id],
  );
}

function tenth(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 10)]!;
}
