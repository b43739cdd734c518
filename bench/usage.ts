import type { ChildProcess } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { operator } from '../src/audit/events/actor.js';
import { table } from '../src/cli/table.js';
import type { Pool } from '../src/db/pool.js';
import { inTransaction } from '../src/db/transaction.js';
import { createKey } from '../src/keys/create.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { createOrg } from '../src/orgs/create.js';
import { plainUsage } from '../test/support/usage-oracle.js';
import { median } from './median.js';
import { openStore } from './store.js';

const MONTH = { since: '2025-10-01', until: '2025-11-01' };
const YEAR = { since: '2025-01-01', until: '2026-01-01' };
/** Further runs are in earlier months, and the report stays one month. */
const MOST_IN_MONTH = 100_000;
const MOST_SANDBOXES = 20_000;

interface Subject {
  pool: Pool;
  orgId: string;
  service: Server;
  bare: Server;
}

interface Server {
  child: ChildProcess;
  url: string;
  headers: Record<string, string>;
}

/** Prints the time of a month of usage in three ways, in sequence in each round, and the memory of the service. */
export async function usage(sizes: readonly number[], rounds: number, yearOf: number): Promise<void> {
  console.log(`Node ${process.versions.node}, ${rounds} rounds, medians; a month of one organization\n`);
  const rows: string[][] = [];
  for (const runs of sizes) rows.push(await withSubject((subject) => month(subject, runs, rounds)));
  const head = [
    'RUNS',
    'ROWS',
    'MB',
    'PLAIN QUERY ms',
    'ROUTE ms',
    'FIRST BYTE ms',
    'BARE ms',
    'PLAIN/ROUTE',
  ];
  if (rows.length > 0) console.log(table([...head, 'ROUTE/BARE', 'GROWTH MiB'], rows));
  if (yearOf > 0) {
    const row = await withSubject((subject) => year(subject, yearOf));
    console.log(`\n${table(['SANDBOXES', 'ROWS', 'MB', 'YEAR s', 'GROWTH MiB'], [row])}`);
  }
}

async function month(subject: Subject, runs: number, rounds: number): Promise<string[]> {
  const { pool, orgId, service, bare } = subject;
  const inMonth = Math.min(runs, MOST_IN_MONTH);
  await loadRuns(pool, orgId, runs, inMonth);
  const window = {
    since: `${MONTH.since}T00:00:00.000000Z`,
    until: `${MONTH.until}T00:00:00.000000Z`,
    now: '2026-01-01T00:00:00.000000Z',
  };
  const plain = await plainUsage(pool, orgId, window);
  await holdRows(pool, orgId);
  const answer = JSON.parse((await read(service, MONTH)).text()) as { rows: unknown[] };
  if (JSON.stringify(answer.rows) !== JSON.stringify(plain))
    throw new Error('the route and the plain query differ');
  await read(bare, MONTH);

  const times = { plain: [] as number[], route: [] as number[], first: [] as number[], bare: [] as number[] };
  let growth = 0;
  let megabytes = 0;
  for (let round = 0; round < rounds; round += 1) {
    times.plain.push(await timed(() => plainUsage(pool, orgId, window)));
    const before = resetPeak(service.child.pid!);
    const { total, first, bytes } = await read(service, MONTH);
    growth = Math.max(growth, peak(service.child.pid!) - before);
    times.route.push(total);
    times.first.push(first);
    megabytes = bytes / 1e6;
    times.bare.push((await read(bare, MONTH)).total);
  }
  const [a, b, c, d] = [times.plain, times.route, times.first, times.bare].map(median) as [
    number,
    number,
    number,
    number,
  ];
  return [
    String(runs),
    String(plain.length),
    megabytes.toFixed(1),
    a.toFixed(0),
    b.toFixed(0),
    c.toFixed(0),
    d.toFixed(0),
    (a / b).toFixed(1),
    (b / d).toFixed(2),
    growth.toFixed(0),
  ];
}

/** Sandboxes that ran throughout the year: the largest possible number of rows. */
async function year({ pool, orgId, service }: Subject, sandboxes: number): Promise<string[]> {
  await loadSandboxes(pool, orgId, sandboxes);
  // A tenth at a time: one statement would sort millions of rows at once.
  await unhurried(pool, async (sql) => {
    for (let part = 0; part < 10; part += 1) {
      await sql.query(
        `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
         select org_id, gen_random_uuid(), id, 2, 512, 1024, '2025-01-01Z', '2026-01-01Z', 'bench'
         from sandboxes where org_id = $1 and right(name, 1) = $2::text`,
        [orgId, String(part)],
      );
    }
  });
  await pool.query('analyze');
  await read(service, MONTH, () => undefined);
  const before = resetPeak(service.child.pid!);
  const { total, bytes } = await read(service, YEAR, () => undefined);
  const growth = peak(service.child.pid!) - before;
  return [
    String(sandboxes),
    String(365 * sandboxes),
    (bytes / 1e6).toFixed(0),
    (total / 1000).toFixed(1),
    growth.toFixed(0),
  ];
}

async function withSubject<T>(work: (subject: Subject) => Promise<T>): Promise<T> {
  const store = await openStore();
  const { pool, url, directory } = store;
  try {
    const org = await createOrg(pool, { name: 'Bench', slug: 'bench' }, operator('bench'));
    const { key } = await createKey(pool, org.id, 'bench', operator('bench'));
    const args = ['serve', '--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'error'];
    const serve = [
      join(PACKAGE_ROOT, 'bin', 'sandkeep'),
      ...args,
      '--database-url',
      url,
      '--data-dir',
      directory,
    ];
    const service = { ...(await store.start(serve)), headers: { authorization: `Bearer ${key}` } };
    const script = fileURLToPath(new URL('bare-server.js', import.meta.url));
    const bare = { ...(await store.start([script, url])), headers: {} };
    return await work({ pool, orgId: org.id, service, bare });
  } finally {
    await store.close();
  }
}

async function loadSandboxes(pool: Pool, orgId: string, count: number): Promise<void> {
  await pool.query(
    `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at)
     select $1, gen_random_uuid(), 'box-' || n, 'bench-box-' || n, 'stopped', false, now(), now()
     from generate_series(1, $2::int) n`,
    [orgId, count],
  );
}

/** Runs of up to six hours at random times of the months, the last `inMonth` of them in the reported month. */
async function loadRuns(pool: Pool, orgId: string, runs: number, inMonth: number): Promise<void> {
  const sandboxes = Math.max(25, Math.min(MOST_SANDBOXES, Math.ceil(inMonth / 40)));
  await loadSandboxes(pool, orgId, sandboxes);
  await unhurried(pool, async (sql) => {
    await sql.query('create temp table numbered as select row_number() over () as n, id from sandboxes');
    for (let back = 0, left = runs; left > 0; back += 1, left -= inMonth) {
      await sql.query(
        `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
         select $1, gen_random_uuid(), i.id, 2, 512, 1024, t.at, t.at + random() * interval '6 hours', 'bench'
         from generate_series(1, $2::int) as n
         cross join lateral (
           select $3::timestamptz - make_interval(months => $4) + random() * interval '27 days' + 0 * n * interval '1 s' as at,
             1 + (n % $5::int) as place) t
         join numbered i on i.n = t.place`,
        [orgId, Math.min(left, inMonth), MONTH.since, back, sandboxes],
      );
    }
    await sql.query('drop table numbered');
  });
  await pool.query('analyze');
}

/** Stores the rows of the month in a table for the bare server. */
async function holdRows(pool: Pool, orgId: string): Promise<void> {
  await pool.query('drop table if exists bare_rows');
  await pool.query(
    `create table bare_rows as
     select day, sandbox_id, (vcpu_micros * 0.000001)::float8 as vcpu_seconds,
       (memory_mib_micros * 0.000001)::float8 as memory_mib_seconds,
       (disk_mib_micros * 0.000001)::float8 as disk_mib_seconds
     from usage_days
     where org_id = '${orgId}' and day >= '${MONTH.since}' and day < '${MONTH.until}' order by day, name, sandbox_id`,
  );
}

function unhurried(pool: Pool, work: Parameters<typeof inTransaction<void>>[1]): Promise<void> {
  return inTransaction(pool, work, { unhurried: true });
}

interface Reading {
  total: number;
  first: number;
  bytes: number;
  text: () => string;
}

/** Reads an answer to its last byte. `take` gets each chunk; default: they are kept. */
async function read(
  { url, headers }: Server,
  range: Record<string, string>,
  take?: (chunk: Buffer) => void,
): Promise<Reading> {
  const begun = performance.now();
  const chunks: Buffer[] = [];
  let first = 0;
  let bytes = 0;
  await new Promise<void>((resolve, reject) => {
    const search = new URLSearchParams(range).toString();
    get(`${url}/v1/billing/usage/sandbox?${search}`, { headers }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`answered ${response.statusCode}`));
      response.on('data', (chunk: Buffer) => {
        if (bytes === 0) first = performance.now() - begun;
        bytes += chunk.length;
        if (take) take(chunk);
        else chunks.push(chunk);
      });
      response.on('end', resolve);
      response.on('error', reject);
    }).on('error', reject);
  });
  return { total: performance.now() - begun, first, bytes, text: () => Buffer.concat(chunks).toString() };
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

/** Resets the peak memory of a process; returns its present MiB. */
function resetPeak(pid: number): number {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return memory(pid, 'VmRSS');
}

function peak(pid: number): number {
  return memory(pid, 'VmHWM');
}

function memory(pid: number, what: string): number {
  const kib = new RegExp(`^${what}:\\s+(\\d+) kB`, 'm').exec(
    readFileSync(`/proc/${pid}/status`, 'utf8'),
  )?.[1];
  return Number(kib) / 1024;
}
