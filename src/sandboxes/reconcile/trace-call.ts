import { traceOfResource } from '../../audit/events/trace-queries.js';
import type { Context } from '../../context.js';

interface EndedCall {
  step: string;
  began: number;
  ended: number;
  error: unknown;
}

/**
 * Records a span of the call, in the trace of the latest request that changed the sandbox. The caller does not wait for
 * it.
 */
export function traceCall(
  { tracing, pool, now, runtime, log }: Context,
  { orgId, sandboxId }: { orgId: string; sandboxId: string },
  { step, began, ended, error }: EndedCall,
): void {
  if (!tracing) return;
  const attributes = { 'sandkeep.runtime': runtime.name, 'sandkeep.sandbox_id': sandboxId };
  traceOfResource(pool, orgId, sandboxId, now())
    .then((parent) =>
      tracing.record({
        name: `runtime ${step}`,
        kind: 'client',
        began,
        ended,
        attributes,
        parent,
        ...(error === undefined ? {} : { errorType: error instanceof Error ? error.name : 'Error' }),
      }),
    )
    .catch((cause: unknown) => log.debug({ err: cause, sandboxId }, 'a call was not traced'));
}
