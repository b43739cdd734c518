import { Type, type TProperties } from 'typebox';
import { isSchemaCurrent } from '../db/migrate.js';
import type { Pool } from '../db/pool.js';
import { inBatches } from '../fairness/batches.js';
import { ApiError } from './errors.js';
import type { App } from './route.js';

/** The part of a runtime that readiness depends on. */
interface Engine {
  readonly name: string;
  readonly warnings?: readonly string[] | undefined;
  readonly engine?: { state: string; reason: string | null };
}

const answerOf = <P extends TProperties>(properties: P) => ({
  hide: true,
  response: { 200: Type.Object({ status: Type.String(), ...properties }) },
});

interface Disk {
  isDatabaseFull: boolean;
  warnings(): string[];
}

interface Served {
  pool: Pool;
  runtime: Engine;
  disk: Disk;
  draining?: AbortSignal;
}

export function healthRoutes(app: App, ctx: Served): void {
  // Batches bound the queries, because callers need no key.
  const isCurrent = inBatches(
    async (asked: readonly undefined[]) => {
      const current = await isSchemaCurrent(ctx.pool);
      return asked.map(() => current);
    },
    { concurrency: 2, maxBatch: Infinity },
  );

  // An orchestrator must not restart the process because the database is down.
  app.get('/healthz', { schema: answerOf({}), config: { probe: true } }, () => ({ status: 'ok' }));

  const Ready = { runtime: Type.String(), warnings: Type.Optional(Type.Array(Type.String())) };
  app.get('/readyz', { schema: answerOf(Ready), config: { probe: true } }, async () => {
    if (ctx.draining?.aborted === true) throw new ApiError('not_ready', 'the service is stopping');
    const current = await isCurrent(undefined).catch((cause: unknown) => {
      throw new ApiError('not_ready', undefined, null, { cause });
    });
    if (!current)
      throw new ApiError('not_ready', 'the schema of the database is not the one of this release');
    const { name: runtime, engine } = ctx.runtime;
    if (engine && engine.state !== 'up')
      throw new ApiError('not_ready', engine.reason ?? undefined, { runtime });
    if (ctx.disk.isDatabaseFull) {
      throw new ApiError('not_ready', 'the disk of the database is full', null, {
        headers: { 'retry-after': '5' },
      });
    }
    const warnings = [...(ctx.runtime.warnings ?? []), ...ctx.disk.warnings()];
    return { status: 'ready', runtime, ...(warnings.length === 0 ? {} : { warnings }) };
  });
}
