import type { Config } from '../config/options.js';
import { readInstance, readServedRuntime } from '../db/instance-queries.js';
import type { Pool, Sql } from '../db/pool.js';
import { valuesOf, type GivenOptions } from '../engines/open.js';
import { engineNamed } from '../engines/register.js';
import type { Holding } from '../engine/runtime.js';
import { VolumeStore } from '../volumes/storage/store.js';

export type EngineOptions = Pick<Config, 'dataDir' | 'volumesDir'> & GivenOptions;

export interface EngineComparison {
  runtime: string;
  /** Null: the engine was compared. */
  unreachable: string | null;
  /** The store says that they run, and the engine does not hold them. */
  notHeld: string[];
  /** The engine holds them, and the store does not say that they run. */
  notStored: string[];
  running: number;
}

const ENGINE_TIMEOUT_MS = 30_000;

/** Compares the running sandboxes of the store with those of the engine. Null: no runtime was served. */
export async function compareEngine(pool: Pool, options: EngineOptions): Promise<EngineComparison | null> {
  const runtime = await readServedRuntime(pool);
  if (runtime === null) return null;
  const stored = await runningSandboxes(pool, runtime);
  const none = { runtime, running: stored.size, notHeld: [], notStored: [] };
  let held: Holding[];
  try {
    held = await withTimeout(holdingsOf(runtime, (await readInstance(pool)).id, options));
  } catch (error) {
    return { ...none, unreachable: (error as Error).message };
  }
  const live = new Set(held.filter(({ state }) => state !== 'exited').map(({ sandboxId }) => sandboxId));
  return {
    ...none,
    unreachable: null,
    notHeld: [...stored].filter((id) => !live.has(id)),
    notStored: [...live].filter((id) => !stored.has(id)),
  };
}

async function runningSandboxes(sql: Sql, runtime: string): Promise<Set<string>> {
  const { rows } = await sql.query<{ id: string }>(
    `select id from sandboxes where runtime = $1 and removed_at is null and status in ('running', 'stopping') order by id`,
    [runtime],
  );
  return new Set(rows.map(({ id }) => id));
}

async function holdingsOf(name: string, instanceId: string, options: EngineOptions): Promise<Holding[]> {
  const engine = engineNamed(name);
  if (!engine) throw new Error(`this release has no runtime ${name}`);
  const { dataDir, volumesDir } = options;
  const surroundings = { instanceId, dataDir, volumes: new VolumeStore(volumesDir), observes: true };
  const values = valuesOf(engine, options);
  const runtime = await engine.connect(values, surroundings).catch((error: unknown) => {
    throw new Error(engine.explain(error, values), { cause: error });
  });
  try {
    return await runtime.list();
  } finally {
    await runtime.close();
  }
}

async function withTimeout<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`the engine did not answer within ${ENGINE_TIMEOUT_MS / 1000} s`)),
      ENGINE_TIMEOUT_MS,
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
