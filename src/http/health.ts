import { Type, type TProperties } from 'typebox';
import type { Context } from '../context.js';
import { isSchemaCurrent } from '../db/migrate.js';
import { inBatches } from '../lib/batches.js';
import { ApiError } from './errors.js';
import type { App } from './route.js';

const answerOf = <P extends TProperties>(properties: P) => ({
  hide: true,
  response: { 200: Type.Object({ status: Type.String(), ...properties }) },
});

export function healthRoutes(app: App, ctx: Context): void {
  // Anybody may ask, as often as they like.
  const isCurrent = inBatches(
    async (asked: readonly undefined[]) => {
      const current = await isSchemaCurrent(ctx.pool);
      return asked.map(() => current);
    },
    { atOnce: 2, most: Infinity },
  );

  /** The process answers. Says nothing of the database, so that an orchestrator does not restart us for its sake. */
  app.get('/healthz', { schema: answerOf({}) }, () => ({ status: 'ok' }));

  /** Requests can be served: the database answers, its schema is the one of this build, and the engine answers. */
  app.get('/readyz', { schema: answerOf({ runtime: Type.String() }) }, async () => {
    const current = await isCurrent(undefined).catch((cause: unknown) => {
      throw new ApiError('not_ready', undefined, null, { cause });
    });
    if (!current)
      throw new ApiError('not_ready', 'the schema of the database is not the one of this release');
    const { name: runtime, engine } = ctx.runtime;
    if (engine && engine.state !== 'up') throw new ApiError('not_ready', engine.reason, { runtime });
    return { status: 'ready', runtime };
  });
}
