import { Type } from 'typebox';
import type { Context } from '../context.js';
import { callerOf } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { answers, answersToBody, type App } from '../http/route.js';
import { MessageResponse, Uuid } from '../http/schema.js';
import { create } from './create.js';
import { remove } from './delete.js';
import { presentVolume } from './present.js';
import { getHostVolume, listVolumes } from './queries.js';
import { CreateVolumeRequest, VolumeResponse } from './schema.js';

const tags = ['volumes'];
const params = Type.Object({ id: Uuid });

export function volumeRoutes(app: App, ctx: Context): void {
  app.get(
    '/v1/volumes',
    {
      schema: {
        operationId: 'list_volumes',
        summary: 'List volumes',
        tags,
        response: answers(Type.Array(VolumeResponse)),
      },
    },
    async (request) => (await listVolumes(ctx.pool, callerOf(request).orgId)).map(presentVolume),
  );

  app.get(
    '/v1/volumes/default',
    {
      schema: {
        operationId: 'get_default_volume',
        summary: "Get the organization's host volume",
        tags,
        response: answers(VolumeResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const volume = await getHostVolume(ctx.pool, callerOf(request).orgId);
      if (!volume) throw new ApiError('sandbox_not_found');
      return presentVolume(volume);
    },
  );

  app.post(
    '/v1/volumes',
    {
      schema: {
        operationId: 'create_volume',
        summary: 'Create a volume',
        tags,
        body: CreateVolumeRequest,
        response: answersToBody(VolumeResponse, 'volume_already_exists'),
      },
    },
    (request) => create(ctx, callerOf(request), request.body),
  );

  app.delete(
    '/v1/volumes/:id',
    {
      schema: {
        operationId: 'delete_volume',
        summary: 'Schedule an unused volume for deletion',
        tags,
        params,
        response: answersToBody(MessageResponse, 'sandbox_not_found', 'volume_in_use', 'host_volume'),
      },
    },
    (request) => remove(ctx, callerOf(request), request.params.id),
  );
}
