import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { FULL_ACCESS } from '../../src/access/access.js';
import { ActiveEventKeys } from '../../src/audit/events/active-keys.js';
import { operator } from '../../src/audit/events/actor.js';
import { SeenHeads } from '../../src/audit/log/seen-heads.js';
import { openEventKeys } from '../../src/audit/log/signing-key.js';
import { type Context } from '../../src/context.js';
import { listenForChanges } from '../../src/db/changes.js';
import { openDataDirectory } from '../../src/db/embedded/directory.js';
import { readPidFile } from '../../src/db/embedded/postmaster.js';
import type { Statement } from '../../src/db/pool.js';
import { ExplainedError } from '../../src/lib/explained-error.js';
import { makeLog } from '../../src/lib/log.js';
import { sleep } from '../../src/lib/sleep.js';
import { createOrg } from '../../src/orgs/create.js';
import { compactCounts } from '../../src/quotas/queries.js';
import { setQuotas } from '../../src/quotas/set.js';
import { SimulatedRuntime } from '../../src/engines/simulated/runtime.js';
import { createSandbox } from '../../src/sandboxes/lifecycle/create.js';
import { Keyring } from '../../src/secrets/keyring.js';
import { UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { openStore, type Store } from '../store.js';
import { labelsOf, requestOf } from './data-set.js';
import { cpuMicros } from './processes.js';
import { makeContext } from '../../src/service/make-context.js';

export interface PgbenchOptions {
  program: string;
  clients: number;
  seconds: number;
}

/** A placeholder in names and keys: pgbench puts a new number there in each transaction. */
const TOKEN = 'unique-token';
const UUID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

const FOLD_EVERY_MS = 200;
const ENDED_MS = 500;

interface Sent {
  text: string;
  values: unknown[];
  /** The SQL types of the values. */
  types: string[];
}

/**
 * Measures the database alone: pgbench with the statements of one create with a start, under an idempotency key and
 * with counted quotas. The embedded server lacks pgbench; any version from 13 will do.
 */
export async function pgbench({ program, clients, seconds }: PgbenchOptions): Promise<void> {
  await promisify(execFile)(program, ['--version']).catch((cause: Error) => {
    throw new ExplainedError(`--program: ${program} cannot be run: ${cause.message}`, { cause });
  });
  const store = await openStore();
  try {
    const script = join(store.directory, 'create.sql');
    const { orgId, text } = await scriptOf(store);
    writeFileSync(script, text);
    if (!('socket' in store.address)) throw new Error('the bench has a database of its own');
    const { socket } = store.address;
    const flags = ['-n', '-M', 'prepared', '-c', `${clients}`, '-j', '1', '-T', `${seconds}`, '-f', script];
    const { pid } = readPidFile(openDataDirectory(join(store.directory, 'data')))!;
    const before = cpuMicros(pid);
    const running = new AbortController();
    const args = [...flags, '-h', socket, '-U', 'sandkeep', 'sandkeep'];
    const [{ stdout: said }] = await Promise.all([
      promisify(execFile)(program, args).finally(() => running.abort()),
      foldWhile(store, orgId, running.signal),
    ]);
    const count = Number(/actually processed: (\d+)/.exec(said)?.[1]);
    // PostgreSQL counts the use of a connection once its process has ended.
    await sleep(ENDED_MS);
    const each = (cpuMicros(pid) - before) / count;
    console.log(`${said}PostgreSQL: ${each.toFixed(0)} µs of CPU time a create`);
  } finally {
    await store.close();
  }
}

/** Folds the counters as the service does. Otherwise each create would add up all earlier ones. */
async function foldWhile({ pool }: Store, orgId: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await compactCounts(pool, orgId);
    await sleep(FOLD_EVERY_MS, signal);
  }
}

async function scriptOf(store: Store): Promise<{ orgId: string; text: string }> {
  const { orgId, sent } = await recordCreate(store);
  const made = new Map<string, string>();
  const lines = sent.map(({ text, values, types }) =>
    text
      .replace(/\$(\d+)/g, (_, number: string) => {
        const index = Number(number) - 1;
        return `cast(${expression(values[index], orgId, made)} as ${types[index]})`;
      })
      .replace(/\s+/g, ' '),
  );
  const text = ['\\set n random(1, 9000000000000000)', ...lines.map((line) => `${line};`), ''].join('\n');
  return { orgId, text };
}

/** A value in SQL, with a new token and new ids in each transaction. */
function expression(value: unknown, orgId: string, made: Map<string, string>): string {
  if (value === null || value === undefined) return 'null';
  const text = textOf(value);
  const parts = text.split(new RegExp(`(${TOKEN}|${UUID.source})`));
  const words = parts.map((part, index) => {
    if (index % 2 === 0 || part === orgId) return literal(part);
    if (part === TOKEN) return 'cast(:n as text)';
    const name = made.get(part) ?? `id-${made.size}`;
    made.set(part, name);
    // The ids rise with the time, as in the service. Random ids would touch more pages of every index.
    const millis = "lpad(to_hex(cast(extract(epoch from now()) * 1000 as bigint)), 12, '0')";
    return `cast(cast(overlay(md5('${name}' || cast(:n as text)) placing ${millis} from 1) as uuid) as text)`;
  });
  return words.length === 1 ? words[0]! : `(${words.join(' || ')})`;
}

/** A colon begins a variable of pgbench. */
function literal(text: string): string {
  const escaped = text.replaceAll('\\', '\\\\').replaceAll("'", "''").replaceAll(':', '\\x3a');
  return `E'${escaped}'`;
}

function textOf(value: unknown): string {
  if (Buffer.isBuffer(value)) return `\\x${value.toString('hex')}`;
  if (Array.isArray(value)) return `{${value.map((item) => JSON.stringify(textOf(item))).join(',')}}`;
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** The statements of one create. All are prepared, so that the database knows the types of their values. */
async function recordCreate(store: Store): Promise<{ orgId: string; sent: Sent[] }> {
  const { pool, directory } = store;
  const key = createHash('sha256').update('bench').digest('base64');
  const eventKeys = openEventKeys({ keys: key });
  const activeKeys = new ActiveEventKeys(eventKeys);
  pool.eventMarker = activeKeys.marker;
  const org = await createOrg(pool, { name: 'Bench', slug: 'bench' }, operator('bench'));
  const limits = { max_sandboxes: 2_000_000_000, max_concurrent_persistent_running: 2_000_000_000 };
  await setQuotas(pool, org.id, limits, operator('bench'));
  const statements: Statement[] = [];
  const client = await pool.connect();
  const recording = new Proxy(client, {
    get(target, name) {
      if (name === 'release') return () => undefined;
      if (name !== 'query') return Reflect.get(target, name) as unknown;
      return async (statement: string | Statement, values: unknown[] = []) => {
        const whole = typeof statement === 'string' ? { text: statement, values } : statement;
        statements.push(whole);
        return target.query(whole);
      };
    },
  });
  const changes = listenForChanges(store.address, () => undefined);
  const recorded = {
    eventMarker: activeKeys.marker,
    connect: async () => Promise.resolve(recording),
  } as unknown as Context['pool'];
  const runtime = new SimulatedRuntime(directory);
  const ctx = makeContext<Context>(Buffer.alloc(32), {
    pool: recorded,
    reads: pool,
    changes,
    eventKeys,
    activeKeys,
    runtime,
    volumes: new VolumeStore(directory),
    disk: UNCHECKED_DISKS,
    seenHeads: new SeenHeads(join(directory, 'event-heads')),
    keyring: () => Keyring.parse(key, 'the bench'),
    log: makeLog('silent', { write: () => undefined }),
    stopping: new AbortController().signal,
  });
  const createAs = async (token: string) => {
    const keyed = {
      key: token,
      fingerprints: [Buffer.alloc(32)] as const,
      waits: false,
      warnings: [],
      settled: false,
      replayed: () => undefined,
    };
    const caller = { orgId: org.id, actor: operator('bench'), access: FULL_ACCESS, keyed };
    await createSandbox(ctx, caller, { ...requestOf(token, labelsOf(1, 100)), slug: token }, { start: true });
  };
  let rows: { name: string; types: string[] }[];
  try {
    // The first create learns the distance to the limits, with more statements than later ones.
    await createAs('first');
    statements.length = 0;
    await createAs(TOKEN);
    const kept = 'select name, parameter_types::text[] as types from pg_prepared_statements';
    ({ rows } = await client.query<{ name: string; types: string[] }>(kept));
  } finally {
    client.release();
    await changes.close();
  }
  const types = new Map(rows.map((row) => [row.name, row.types]));
  const sent = statements.map(({ name, text, values }) => {
    if (name === undefined && values.length > 0) throw new Error(`it is not prepared: ${text}`);
    return { text, values, types: types.get(name ?? '') ?? [] };
  });
  return { orgId: org.id, sent };
}
