import { Type } from 'typebox';
import { ApiError } from '../http/errors.js';
import { refusals, refusalsOfBody, type App } from '../http/route.js';
import { AnyObject, Field, PageQuery, Uuid } from '../http/schema.js';

const NO_SNAPSHOTS =
  'this service has no snapshots: keep files in a volume, or build an image, and create sandboxes with it';

const tags = ['sandboxes'];
const snapshotId = Type.Object({ id: Field(Uuid, 'The id of the snapshot.') });
const snapshotName = Type.Object({ name: Type.String({ description: 'The name of the snapshot.' }) });
const operationId = Type.Object({ id: Field(Uuid, 'The id of the operation.') });
const page = Type.Object(PageQuery, { additionalProperties: false });

/**
 * Routes of later clients for which the service has no operation. A 404 would read as a missing sandbox or snapshot, so
 * they answer with the codes that these clients show as unsupported.
 * A client reads any 409 of a creation as a name that is taken. It shows 501 with its code and message.
 */
export function unsupportedRoutes(app: App): void {
  const description = 'Not supported: there are no snapshots. The answer is 501 `not_supported`.';
  const handler = () => {
    throw new ApiError('not_supported', NO_SNAPSHOTS);
  };
  const read = { scope: 'sandboxes:read' as const, description, tags, response: refusals('not_supported') };
  const write = { ...read, scope: 'sandboxes:write' as const, response: refusalsOfBody('not_supported') };

  app.post(
    '/v1/snapshots',
    {
      schema: {
        ...write,
        operationId: 'create_snapshot',
        summary: 'Create a snapshot of a sandbox',
        body: AnyObject({ description: 'The sandbox and the name of the snapshot.' }),
      },
    },
    handler,
  );
  app.delete(
    '/v1/snapshots/:id',
    {
      schema: {
        ...write,
        operationId: 'delete_snapshot',
        summary: 'Delete a snapshot',
        params: snapshotId,
      },
    },
    handler,
  );
  app.delete(
    '/v1/snapshots/by-name/:name',
    {
      schema: {
        ...write,
        operationId: 'delete_snapshot_by_name',
        summary: 'Delete a snapshot',
        params: snapshotName,
      },
    },
    handler,
  );
  const list = { ...read, querystring: page };
  for (const [path, schema] of [
    ['/v1/snapshots', { ...list, operationId: 'list_snapshots', summary: 'List snapshots' }],
    [
      '/v1/snapshots/:id',
      { ...read, operationId: 'get_snapshot', summary: 'Get a snapshot', params: snapshotId },
    ],
    [
      '/v1/snapshots/by-name/:name',
      { ...read, operationId: 'get_snapshot_by_name', summary: 'Get a snapshot', params: snapshotName },
    ],
    [
      '/v1/sandboxes/snapshot-candidates',
      {
        ...list,
        operationId: 'list_snapshot_candidates',
        summary: 'List sandboxes that can be captured in a snapshot',
      },
    ],
    [
      '/v1/snapshot-operations',
      { ...list, operationId: 'list_snapshot_operations', summary: 'List operations on snapshots' },
    ],
    [
      '/v1/snapshot-operations/:id',
      {
        ...read,
        operationId: 'get_snapshot_operation',
        summary: 'Get an operation on snapshots',
        params: operationId,
      },
    ],
  ] as const) {
    app.get(path, { schema }, handler);
  }
}
