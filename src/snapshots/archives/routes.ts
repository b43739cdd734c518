import type { FastifyReply, FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { makeTransferSlots } from '../../access/transfer-slots.js';
import type { WorkerContext } from '../../context.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import { answers, type App } from '../../http/route.js';
import { Field, Uuid } from '../../http/schema.js';
import { acceptFiles, Bytes, OCTETS } from '../../http/upload.js';
import { inUpload, mayRepeat } from '../../idempotency/file-write.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import type { Step } from '../../registry/step.js';
import { forwardTo } from '../../sandboxes/sessions/forward.js';
import type { SnapshotKey } from '../queries.js';
import { SnapshotResponse } from '../schema.js';
import { exportSnapshot, findExported } from './export.js';
import { importSnapshot } from './import.js';

/**
 * The engine or the service keeps the archive of each on its disk, and reads it as fast as the client takes it. An
 * export of a microVM has a machine of its own.
 */
export const TRANSFERS = { total: 4, each: 2 };
const TAR = 'application/x-tar';
const tags = ['snapshots'];
const byId = Type.Object({ id: Field(Uuid, 'The id of the snapshot.') });
const byName = Type.Object({ name: Type.String({ description: 'The name of the snapshot.' }) });

export function snapshotArchiveRoutes(app: App, ctx: WorkerContext, steps: PacedSteps): void {
  const enter = makeTransferSlots(ctx, {
    ...TRANSFERS,
    waiting: { total: 200, each: 20 },
    message: 'too many exports and imports of snapshots are under way: try again later',
    retryAfterSecs: 10,
  });
  const exported = {
    // HEAD would save the whole image.
    exposeHeadRoute: false,
    // The scope is that of the files of sandboxes, and there is no sandbox.
    config: { onEngine: false, waits: true },
  };
  const schema = {
    scope: 'sandboxes:exec',
    description:
      'Sends an archive in the OCI image layout, with all layers. `docker load` takes it, too. The header `docker-content-digest` has the digest of its image manifest.',
    tags,
    response: {
      ...answers(Bytes, 'snapshot_not_found', 'not_supported'),
      200: { description: 'The archive.', content: { [TAR]: { schema: Bytes } } },
    },
  } as const;

  app.get(
    '/v1/snapshots/:id/export',
    {
      ...exported,
      schema: {
        ...schema,
        operationId: 'export_snapshot',
        summary: 'Export a snapshot as an archive',
        params: byId,
      },
    },
    (request, reply) => send(request, reply, { id: request.params.id }),
  );
  app.get(
    '/v1/snapshots/by-name/:name/export',
    {
      ...exported,
      schema: {
        ...schema,
        operationId: 'export_snapshot_by_name',
        summary: 'Export a snapshot as an archive, by its name',
        params: byName,
      },
    },
    (request, reply) => send(request, reply, { name: request.params.name }),
  );

  acceptFiles(app, (raw) => {
    raw.post(
      '/v1/snapshots/import',
      {
        config: { upload: true },
        schema: {
          operationId: 'import_snapshot',
          scope: 'sandboxes:write',
          summary: 'Make a snapshot of an archive',
          description:
            'The body is one image, as an archive in the OCI image layout or of `docker save`, with any content-type or none. Layers are plain or compressed by gzip. The answer comes when the snapshot is ready.',
          tags,
          querystring: Type.Object(
            {
              name: Field(Type.String(), 'The name of the snapshot.'),
              labels: Type.Optional(
                Type.String({ description: 'Its labels as a JSON object, such as `{"team":"ml"}`.' }),
              ),
            },
            { additionalProperties: false },
          ),
          headers: WriteHeaders,
          body: { content: { [OCTETS]: { schema: Bytes } } },
          response: answers(
            SnapshotResponse,
            'idempotency_conflict',
            'label_not_allowed',
            'quota_exceeded',
            'snapshot_already_exists',
            'payload_too_large',
            'not_supported',
          ),
        },
      },
      async (request, reply) => {
        const signal = await enter(request, reply);
        const own = contextOf(request);
        const { orgId } = callerOf(request);
        const step: Step = async (work) => steps.step(orgId, work);
        const length = request.headers['content-length'];
        const repeats = await mayRepeat(own, writerOf(request, reply, ''));
        return inUpload(
          own,
          (digest) => writerOf(request, reply, digest),
          (onReceived) =>
            importSnapshot(own, callerOf(request), request.query, {
              body: request.body as Readable | undefined,
              length: length === undefined ? undefined : Number(length),
              mayRepeat: repeats,
              step,
              signal,
              onReceived,
            }),
        );
      },
    );
  });

  async function send(
    request: FastifyRequest,
    reply: FastifyReply,
    key: SnapshotKey,
  ): Promise<Readable | void> {
    const own = contextOf(request);
    const caller = callerOf(request);
    const row = await findExported(own, caller, key);
    if (row.worker_id !== own.runtime.engineId && request.forwardedFor === null) {
      await forwardTo(ctx, row.worker_id, request, reply);
      return;
    }
    const signal = await enter(request, reply);
    const step: Step = async (work) => steps.step(caller.orgId, work);
    const { digest, bytes, content } = await exportSnapshot(own, caller, row, { step, signal });
    void reply.type(TAR).headers({
      'content-disposition': `attachment; filename="${row.name}.tar"`,
      'docker-content-digest': digest,
      'content-length': bytes,
    });
    return Readable.from(content, { objectMode: false });
  }
}
