import type Docker from 'dockerode';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { makeClient, type Client } from '../support/client.js';
import { readBudget, readSeed } from '../support/budget.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  type Served,
} from '../support/processes.js';
import { until } from '../support/polling.js';
import { openOwnEngine, type OwnEngine } from './support/docker-engine.js';
import { micros } from './support/engine-journal.js';
import { Dice } from './support/seeded-random.js';

const BUDGET = readBudget({
  seconds: 'SANDKEEP_TEST_CRASH_ENGINE_SECONDS',
  count: 'SANDKEEP_TEST_CRASH_ENGINE_ROUNDS',
  defaultSeconds: 15,
  least: 2,
  roundMs: 240_000,
});
const SEED = readSeed('SANDKEEP_TEST_CRASH_SEED');
/** Seconds where nothing else runs. */
const SETTLES_WITHIN_MS = 180_000;
const NAMES = ['ant', 'bee', 'cat', 'dog', 'elk'];

/** Appends a line to the container's own disk at each start. */
const COMMAND = ['sh', '-c', 'echo started >> /starts; exec sleep 1000'];

/** Creates with the same image and memory take its members, which then get their command. */
const POOL = {
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { memory_mib: 32 },
  size: 2,
};

interface Stored {
  id: string;
  status: string;
  removed: boolean;
  destroyed: boolean;
  run_id: string | null;
  /** No create has taken it from its pool. */
  warm: boolean;
  /** It got the command of its create after its start. */
  is_given: boolean;
  runs: { id: string; started_at: string | null; stopped_at: string | null; end_reason: string | null }[];
}

describeDocker('after kill -9 of the service, the engine or both', () => {
  let engine: OwnEngine;
  let folder: string;
  beforeAll(async () => {
    engine = await openOwnEngine();
    makeImage(engine.socket);
    folder = makeFolder();
  });
  afterAll(async () => {
    await cleanUp(folder);
    await engine.close();
  });

  test(
    `the stored runs equal those of the engine, and no run starts twice: ${BUDGET.text}`,
    async () => {
      const dice = new Dice(SEED);
      const notes: string[] = [];
      console.log(`crash-engine: SANDKEEP_TEST_CRASH_SEED=${SEED}, ${BUDGET.text}`);
      let service = await serve();
      const key = service.firstKey!;
      await clientOf(service, key).request('PUT', '/v1/pools/pool', { body: POOL });
      let engineKills = 0;
      let round = 0;
      const history = () =>
        `SANDKEEP_TEST_CRASH_SEED=${SEED} SANDKEEP_TEST_CRASH_ENGINE_ROUNDS=${round}\n${notes.join('\n')}`;
      while (BUDGET.left(round) > 0) {
        round += 1;
        const client = clientOf(service, key);
        await until(
          async () => (await client.get('/v1/pools/pool')).body,
          ({ ready }) => ready > 0,
        );
        const own = takeFromPool(client, `own-${round}`, notes);
        const asking = Promise.all([own, ask(client, dice, notes), ask(client, dice, notes)]);
        await sleep(dice.between(0, 1_500));
        const victim = dice.oneOf(['service', 'engine', 'both'] as const);
        notes.push(`round ${round}: kill ${victim}`);
        if (victim !== 'engine') kill('SIGKILL', service.pid);
        if (victim !== 'service') await engine.kill();
        if (victim !== 'service') engineKills += 1;
        await asking;
        await sleep(dice.between(0, 500));
        if (victim !== 'service') await engine.start();
        if (victim !== 'engine') {
          await service.exited;
          service = await serve();
        }
        await settle(() => `${history()}\n${service.err().slice(-4_000)}`, engineKills);
      }
      const client = clientOf(service, key);
      const given = (await readStore(folder)).filter(({ is_given }) => is_given).length;
      await client.delete('/v1/pools/pool');
      const { body } = await client.get('/v1/sandboxes', { limit: 100 });
      for (const { id } of body.data) await client.delete(`/v1/sandboxes/${id}`);
      await settle(history, engineKills);
      expect(await sandboxContainers(engine)).toEqual([]);
      expect(await stop(service)).toBe(0);
      console.log(`crash-engine: ${round} rounds; ${given} sandboxes came from the pool, with a command`);
      expect(round).toBeGreaterThanOrEqual(BUDGET.least);
    },
    BUDGET.timeoutMs,
  );

  function serve(): Promise<Served> {
    const runtime = ['--runtime', 'docker', '--docker-socket', engine.socket, '--docker-network', 'none'];
    const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn', ...runtime];
    return ready(launch(args), folder);
  }

  /** Compares until no fault is found. Throws the faults that stay. */
  async function settle(history: () => string, engineKills: number): Promise<void> {
    const deadline = Date.now() + SETTLES_WITHIN_MS;
    for (;;) {
      const wrong = await compare(engine, await readStore(folder), engineKills).catch(unlessUnsure);
      if (wrong.length === 0) return;
      if (Date.now() > deadline) throw new Error(`${wrong.join('\n')}\n\n${history()}`);
      await sleep(100);
    }
  }
});

function clientOf({ url }: Served, key: string): Client {
  return makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
}

/** Sends random operations in sequence until the service is gone. */
async function ask(client: Client, dice: Dice, notes: string[]): Promise<void> {
  try {
    for (let count = dice.between(3, 8); count > 0; count -= 1) {
      const name = dice.oneOf(NAMES);
      const operation = dice.weighted({ create: 45, start: 20, stop: 20, delete: 15 });
      const path = `/v1/sandboxes/by-name/${name}`;
      const image = { type: 'oci', reference: IMAGE };
      const spec = {
        name,
        image,
        pull_policy: 'never',
        runtime: { cmd: COMMAND },
        resources: { memory_mib: 32 },
      };
      const { status } =
        operation === 'create'
          ? await client.post('/v1/sandboxes', spec, { start: true })
          : operation === 'delete'
            ? await client.delete(path)
            : await client.post(`${path}/${operation}`);
      notes.push(`${operation} ${name}: ${status}`);
      await sleep(dice.between(0, 300));
    }
  } catch (error) {
    // The connection broke.
    if (!(error instanceof TypeError)) throw error;
  }
}

/** The kill may come before its commit, before its command has begun, or later. */
async function takeFromPool(client: Client, name: string, notes: string[]): Promise<void> {
  try {
    const { size: _, ...spec } = POOL;
    const request = { ...spec, name, runtime: { cmd: COMMAND } };
    const { status, body } = await client.post('/v1/sandboxes', request, { start: true });
    notes.push(`create ${name}: ${status} ${body.source?.start}`);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
}

async function readStore(folder: string): Promise<Stored[]> {
  return inDatabase(folder, async (client) => {
    await client.query('set timezone to utc');
    const time = (column: string) => `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
    const { rows } = await client.query<Stored>(
      `select s.id, s.status, s.removed_at is not null as removed, s.destroyed_at is not null as destroyed, s.run_id,
         s.warm, s.takes is not null and not s.warm as is_given,
         coalesce((
           select json_agg(json_build_object('id', r.id, 'end_reason', r.end_reason,
             'started_at', ${time('r.started_at')}, 'stopped_at', ${time('r.stopped_at')}))
           from runs r where r.org_id = s.org_id and r.sandbox_id = s.id), '[]') as runs
       from sandboxes s`,
    );
    return rows;
  });
}

/** Every container but the one that fills the volume with process 1. */
async function sandboxContainers({ docker }: OwnEngine): Promise<Docker.ContainerInfo[]> {
  const containers = await docker.listContainers({ all: true });
  return containers.filter(({ Labels }) => Labels['dev.sandkeep.init'] === undefined);
}

async function compare(engine: OwnEngine, store: Stored[], engineKills: number): Promise<string[]> {
  const wrong: string[] = [];
  const sandboxes = new Map(store.map((row) => [row.id, row]));
  const held = new Map<string, string>();
  for (const { Id, Names, Labels } of await sandboxContainers(engine)) {
    const sandboxId = Labels['dev.sandkeep.sandbox'] ?? '';
    // A later run than that of the creation is in the name.
    const later = /\.([0-9a-f]{32})\.[0-9a-z]+$/.exec(Names[0] ?? '')?.[1];
    const runId =
      later === undefined
        ? (Labels['dev.sandkeep.run'] ?? '')
        : [0, 8, 12, 16, 20, 32]
            .flatMap((end, at, ends) => (at === 0 ? [] : later.slice(ends[at - 1], end)))
            .join('-');
    const row = sandboxes.get(sandboxId);
    if (!row || row.destroyed || held.has(sandboxId)) wrong.push(`${Names[0]} should not be`);
    held.set(sandboxId, runId);
    if (!row) continue;
    const container = engine.docker.getContainer(Id);
    const { State } = await container.inspect();
    const run = row.runs.find(({ id }) => id === runId);
    const recorded = [State.StartedAt, State.Running ? null : State.FinishedAt].map(cut);
    const ran = run?.started_at != null;
    if (ran && String([run.started_at, run.stopped_at]) !== String(recorded)) {
      wrong.push(`run ${runId} ran ${recorded.join()} and is stored as ${run.started_at}, ${run.stopped_at}`);
    }
    if (State.Running !== (row.status === 'running' && row.run_id === runId)) {
      wrong.push(`sandbox ${row.id} is ${row.status} and its container ${State.Status}`);
    }
    if (State.Running && row.status === 'running' && !row.warm) {
      const commands = await commandsIn(container);
      if (commands !== 1) wrong.push(`sandbox ${row.id} runs ${commands} commands, given: ${row.is_given}`);
    }
    // A killed engine repeats a start that it had begun and not stored.
    const starts = await startsOf(container);
    const started = row.runs.filter(({ started_at }) => started_at !== null).length;
    if (starts > started + engineKills) wrong.push(`sandbox ${row.id} had ${started} runs, ${starts} starts`);
  }
  for (const { id, status, removed, destroyed, runs } of store) {
    if (removed !== destroyed || (['starting', 'stopping'].includes(status) && !removed)) {
      wrong.push(`sandbox ${id} is ${status}${removed ? ', removed' : ''}`);
    }
    if (!removed && runs.some(({ started_at }) => started_at !== null) && !held.has(id)) {
      wrong.push(`sandbox ${id} is ${status} and has no container`);
    }
    const times = runs
      .flatMap((run) => (run.started_at === null ? [] : [run]))
      .toSorted((a, b) => Number(micros(a.started_at!) - micros(b.started_at!)));
    for (const [index, run] of times.entries()) {
      const before = times[index - 1];
      if (before && !(before.stopped_at !== null && micros(before.stopped_at) <= micros(run.started_at!))) {
        wrong.push(`runs ${before.id} and ${run.id} overlap`);
      }
    }
    for (const run of runs) if (run.end_reason === 'lost') wrong.push(`run ${run.id} of ${id} is lost`);
  }
  return wrong;
}

/** The engine gives no state for a container that is being removed or changed: retry later. */
function unlessUnsure(error: Error & { statusCode?: number }): string[] {
  if (error.statusCode === undefined) throw error;
  return [error.message];
}

/** Cut to the microsecond, as it is stored. */
function cut(time: string | null): string | null {
  if (time === null) return null;
  const [seconds, fraction = ''] = time.slice(0, -1).split('.');
  return `${seconds}.${fraction.padEnd(6, '0').slice(0, 6)}Z`;
}

/** The commands of creates that run in it now. */
async function commandsIn(container: Docker.Container): Promise<number> {
  const { Processes } = (await container.top({ ps_args: '-eo pid,args' })) as {
    Processes: string[][] | null;
  };
  // Null: it has just ended.
  return (Processes ?? []).filter(([, args]) => args === 'sleep 1000').length;
}

/** The number of starts on its disk, also for a container that has ended. */
async function startsOf(container: Docker.Container): Promise<number> {
  const chunks: Buffer[] = [];
  try {
    const archive = await container.getArchive({ path: '/starts' });
    for await (const chunk of archive) chunks.push(chunk as Buffer);
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode === 404) return 0;
    throw error;
  }
  return Buffer.concat(chunks).toString('latin1').split('started\n').length - 1;
}
