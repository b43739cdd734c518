import { Type } from 'typebox';
import type { Context } from '../context.js';
import { isSchemaCurrent } from '../db/migrate.js';
import { inBatches } from '../lib/batches.js';
import { ApiError } from './errors.js';
import type { App } from './route.js';

const schema = { hide: true, response: { 200: Type.Object({ status: Type.String() }) } };

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
  app.get('/healthz', { schema }, () => ({ status: 'ok' }));

  /** Requests can be served: the database answers, and its schema is the one of this build. */
  app.get('/readyz', { schema }, async () => {
    const current = await isCurrent(undefined).catch((cause: unknown) => {
      throw new ApiError('not_ready', undefined, null, { cause });
    });
    if (!current)
      throw new ApiError('not_ready', 'the schema of the database is not the one of this release');
    return { status: 'ready' };
  });
}
