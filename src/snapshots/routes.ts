import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid, Words } from '../http/schema.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import { createSnapshot } from './create.js';
import { deleteSnapshot } from './delete.js';
import { listOperations, listReady, listSources, showOperation, showSnapshot } from './list.js';
import { restoreSnapshot } from './restore.js';
import {
  CreateSnapshotRequest,
  PaginatedSnapshot,
  PaginatedSnapshotCandidate,
  PaginatedSnapshotOperation,
  SnapshotOperation,
  SnapshotResponse,
} from './schema.js';

const tags = ['snapshots'];
const byId = Type.Object({ id: Field(Uuid, 'The id of the snapshot.') });
const byName = Type.Object({ name: Type.String({ description: 'The name of the snapshot.' }) });
const operationId = Type.Object({ id: Field(Uuid, 'The id of the operation.') });
const page = Type.Object(PageQuery, { additionalProperties: false });
const DELETION =
  'Marks the snapshot as `deleting`, and the service purges it later. Until then it can be restored. Sandboxes that were made from it keep their disks. An id of an operation that has not ended cancels it.';

export function snapshotRoutes(app: App): void {
  app.post(
    '/v1/snapshots',
    {
      schema: {
        operationId: 'create_snapshot',
        scope: 'sandboxes:write',
        summary: 'Create a snapshot of a sandbox',
        description:
          'Captures the disk of a sandbox that is stopped or runs. A running one is paused meanwhile. The answer is an operation, which ends later.',
        tags,
        headers: WriteHeaders,
        body: CreateSnapshotRequest,
        response: answersToWrite(
          SnapshotOperation,
          'sandbox_not_found',
          'label_not_allowed',
          'quota_exceeded',
          'snapshot_already_exists',
          'not_supported',
        ),
      },
    },
    (request, reply) => createSnapshot(contextOf(request), writerOf(request, reply), request.body),
  );

  app.get(
    '/v1/snapshots',
    {
      schema: {
        operationId: 'list_snapshots',
        scope: 'sandboxes:read',
        summary: 'List snapshots',
        description: 'Returns one page of the snapshots that are ready, the newest first.',
        tags,
        querystring: Type.Object(
          {
            ...PageQuery,
            labels: Type.Optional(
              Type.String({
                description:
                  'A JSON object of labels, such as `{"team":"ml"}`. A snapshot must have all of them.',
              }),
            ),
            include: Type.Optional(
              Words(['deleted'], {
                description: '`deleted` lists snapshots that are being deleted, too. They can be restored.',
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: answers(PaginatedSnapshot),
      },
    },
    (request) => listReady(contextOf(request), callerOf(request), request.query),
  );

  app.get(
    '/v1/snapshots/:id',
    {
      schema: {
        operationId: 'get_snapshot',
        scope: 'sandboxes:read',
        summary: 'Get a snapshot',
        description: 'Returns the snapshot. One that is being deleted is found until it is purged.',
        tags,
        params: byId,
        response: answers(SnapshotResponse, 'snapshot_not_found'),
      },
    },
    (request) => showSnapshot(contextOf(request), callerOf(request), { id: request.params.id }),
  );

  app.get(
    '/v1/snapshots/by-name/:name',
    {
      schema: {
        operationId: 'get_snapshot_by_name',
        scope: 'sandboxes:read',
        summary: 'Get a snapshot by its name',
        description: 'Returns the ready snapshot with this name.',
        tags,
        params: byName,
        response: answers(SnapshotResponse, 'snapshot_not_found'),
      },
    },
    (request) => showSnapshot(contextOf(request), callerOf(request), { name: request.params.name }),
  );

  app.delete(
    '/v1/snapshots/:id',
    {
      schema: {
        operationId: 'delete_snapshot',
        scope: 'sandboxes:write',
        summary: 'Schedule a snapshot for deletion',
        description: DELETION,
        tags,
        params: byId,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'snapshot_not_found'),
      },
    },
    (request, reply) =>
      deleteSnapshot(contextOf(request), writerOf(request, reply), { id: request.params.id }),
  );

  app.delete(
    '/v1/snapshots/by-name/:name',
    {
      schema: {
        operationId: 'delete_snapshot_by_name',
        scope: 'sandboxes:write',
        summary: 'Schedule a snapshot for deletion, by its name',
        description: DELETION,
        tags,
        params: byName,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'snapshot_not_found'),
      },
    },
    (request, reply) =>
      deleteSnapshot(contextOf(request), writerOf(request, reply), { name: request.params.name }),
  );

  app.post(
    '/v1/snapshots/:id/restore',
    {
      schema: {
        operationId: 'restore_snapshot',
        scope: 'sandboxes:write',
        summary: 'Restore a snapshot that is being deleted',
        description:
          'Makes a snapshot with the status `deleting` ready again. After the purge it is not found.',
        tags,
        params: byId,
        headers: WriteHeaders,
        response: answersToWrite(SnapshotResponse, 'snapshot_not_found', 'snapshot_already_exists'),
      },
    },
    (request, reply) => restoreSnapshot(contextOf(request), writerOf(request, reply), request.params.id),
  );

  app.get(
    '/v1/sandboxes/snapshot-candidates',
    {
      schema: {
        operationId: 'list_snapshot_candidates',
        scope: 'sandboxes:read',
        summary: 'List sandboxes that can be captured in a snapshot',
        description: 'Returns one page of the sandboxes that run, or have run, the newest first.',
        tags,
        querystring: page,
        response: answers(PaginatedSnapshotCandidate, 'not_supported'),
      },
    },
    (request) => listSources(contextOf(request), callerOf(request), request.query),
  );

  app.get(
    '/v1/snapshot-operations',
    {
      schema: {
        operationId: 'list_snapshot_operations',
        scope: 'sandboxes:read',
        summary: 'List operations on snapshots',
        description:
          'Returns one page of the operations that make snapshots, the newest first. One that failed is listed for 30 days.',
        tags,
        querystring: page,
        response: answers(PaginatedSnapshotOperation),
      },
    },
    (request) => listOperations(contextOf(request), callerOf(request), request.query),
  );

  app.get(
    '/v1/snapshot-operations/:id',
    {
      schema: {
        operationId: 'get_snapshot_operation',
        scope: 'sandboxes:read',
        summary: 'Get an operation on snapshots',
        description: 'Returns the progress of an operation, and its snapshot when it has succeeded.',
        tags,
        params: operationId,
        response: answers(SnapshotOperation, 'snapshot_operation_not_found'),
      },
    },
    (request) => showOperation(contextOf(request), callerOf(request), request.params.id),
  );
}
