import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { ApiError } from '../../http/errors.js';
import { answers, type App } from '../../http/route.js';
import { Field, Uuid } from '../../http/schema.js';
import { eventStream, sendEvents } from '../../http/sse.js';
import type { SandboxKey } from '../queries.js';
import { MetricsFollowers } from './follow.js';
import { getMeasured } from './queries.js';
import { SandboxMetrics } from './schema.js';
import { showMetrics } from './show.js';

const TAGS = ['sandboxes'];

export function metricsRoutes(app: App): void {
  const followers = new MetricsFollowers();

  addressed(
    '/v1/sandboxes/:sandbox_id/metrics',
    '',
    Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') }),
    (params) => ({ id: (params as { sandbox_id: string }).sandbox_id }),
  );
  addressed(
    '/v1/sandboxes/by-name/:name/metrics',
    '_by_name',
    Type.Object({ name: Type.String({ description: 'The name of the sandbox.' }) }),
    (params) => ({ name: (params as { name: string }).name }),
  );

  function addressed(
    path: string,
    suffix: string,
    params: ReturnType<typeof Type.Object>,
    keyOf: (params: unknown) => SandboxKey,
  ): void {
    app.get(
      path,
      {
        config: { onWorker: true },
        schema: {
          operationId: `get_sandbox_metrics${suffix}`,
          scope: 'sandboxes:read',
          summary: 'Get the use of a sandbox',
          description:
            'CPU, memory, disk and network of a sandbox: now, and points of the last hour. `current` is no older than `sample_interval_ms` while the engine answers.',
          tags: TAGS,
          params,
          response: answers(SandboxMetrics, 'sandbox_not_found', 'not_supported'),
        },
      },
      async (request) => {
        const { orgId, access } = callerOf(request);
        const key = { ...keyOf(request.params), requiredLabels: access.labels };
        const { pool, use } = contextOf(request);
        const sandbox = await getMeasured(pool, orgId, key);
        if (!sandbox) throw new ApiError('sandbox_not_found');
        return showMetrics(use, sandbox);
      },
    );
    app.get(
      `${path}/stream`,
      {
        // A HEAD request would follow the samples without a reader.
        exposeHeadRoute: false,
        config: { onWorker: true },
        schema: {
          operationId: `stream_sandbox_metrics${suffix}`,
          scope: 'sandboxes:read',
          summary: 'Follow the use of a sandbox',
          description:
            'Sends server-sent events. Each event `sample` has the fields of `current` as its data, one every `sample_interval_ms`. The event `end` follows the end of the run, and comes at once when there are no samples. A stream without it is not complete.',
          tags: TAGS,
          params,
          response: { ...answers(Type.Any(), 'sandbox_not_found', 'not_supported'), ...eventStream },
        },
      },
      async (request, reply) => {
        const { orgId, access } = callerOf(request);
        const key = { ...keyOf(request.params), requiredLabels: access.labels };
        return sendEvents(reply, await followers.follow(contextOf(request), orgId, key, reply));
      },
    );
  }
}
