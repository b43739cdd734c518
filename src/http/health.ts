import { Type, type TProperties } from 'typebox';
import { isSchemaCurrent } from '../db/migrate.js';
import type { Pool } from '../db/pool.js';
import { inBatches } from '../lib/batches.js';
import { ApiError } from './errors.js';
import type { App } from './route.js';

/** The part of a runtime that readiness depends on. */
interface Engine {
  readonly name: string;
  readonly engine?: { state: string; reason: string | null };
}

const answerOf = <P extends TProperties>(properties: P) => ({
  hide: true,
  response: { 200: Type.Object({ status: Type.String(), ...properties }) },
});

export function healthRoutes(app: App, ctx: { pool: Pool; runtime: Engine }): void {
  // Batches bound the queries, because callers need no key.
  const isCurrent = inBatches(
    async (asked: readonly undefined[]) => {
      const current = await isSchemaCurrent(ctx.pool);
      return asked.map(() => current);
    },
    { concurrency: 2, maxBatch: Infinity },
  );

  // An orchestrator must not restart the process because the database is down.
  app.get('/healthz', { schema: answerOf({}) }, () => ({ status: 'ok' }));

  app.get('/readyz', { schema: answerOf({ runtime: Type.String() }) }, async () => {
    const current = await isCurrent(undefined).catch((cause: unknown) => {
      throw new ApiError('not_ready', undefined, null, { cause });
    });
    if (!current)
      throw new ApiError('not_ready', 'the schema of the database is not the one of this release');
    const { name: runtime, engine } = ctx.runtime;
    if (engine && engine.state !== 'up')
      throw new ApiError('not_ready', engine.reason ?? undefined, { runtime });
    return { status: 'ready', runtime };
  });
}
