import type { WorkerContext } from '../../context.js';
import { listSampled } from './queries.js';

const REFRESH_MS = 5_000;

/** Makes the pass that samples the running sandboxes of the worker. */
export function makeSampling(): (ctx: WorkerContext) => Promise<void> {
  let refreshAt = -Infinity;
  return async ({ use, pool, runtime }) => {
    if (!use.isSampling || performance.now() >= refreshAt) {
      use.keep(await listSampled(pool, runtime.engineId));
      refreshAt = performance.now() + REFRESH_MS;
    }
    await use.pass();
  };
}
